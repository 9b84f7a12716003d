"""What `emmy-eq targets calibrate` runs and keeps, apart from the GPU: kernels on the simulator, the file, what a target takes from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from emmy_eq import cli, loop_ir
from emmy_eq.codegen import calibrate, simulate
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.tile_ir import to_tile
from emmy_eq.codegen.tune import reference
from emmy_eq.errors import InvalidInput, NoDevice
from emmy_eq.extract import calibration
from emmy_eq.extract.calibration import Calibration
from emmy_eq.extract.cost import cost
from emmy_eq.extract.targets import target, targets
from emmy_eq.ops import DTYPES

from . import loop_samples as samples

H200 = targets()["H200"]
HALF = Calibration("H200", "NVIDIA H200", {name: 0.5 * rate for name, rate in H200.published.items()}, 3e-6, 5e-6, "2026-11-29", "0")


@pytest.mark.parametrize(
    "kernel",
    [calibrate.copy(64), calibrate.chain("fma", 64), calibrate.chain("exp2", 64), calibrate.product(32, "bf16")],
    ids=lambda k: k.name,
)
def test_micro_kernels_compute_what_they_say(kernel: loop_ir.Kernel) -> None:
    memory = reference.draw(kernel) | {b.name: np.empty(b.shape, DTYPES[b.dtype]) for b in kernel.outputs}
    expected = reference.Reference(kernel, memory)
    simulate.run(lower(to_tile(kernel, schedules(kernel, H200)[0]), H200), memory)
    out = memory["out"]
    assert expected.verdict(
        [torch.from_numpy(out.astype(np.float32)).to(torch.bfloat16 if kernel.name == "product" else torch.float32)]
    ).passed


def test_a_target_takes_what_was_measured_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMMY_EQ_STORE", str(tmp_path / "t.sqlite"))
    assert target("H200") is H200
    calibration.keep(tmp_path / calibration.FILE, HALF)
    measured = target("sm_90a")
    assert measured.sustained == HALF.sustained
    assert measured.launch_seconds == 3e-6
    for kernel in (samples.transpose(1 << 12, 1 << 13), samples.matmul(4096, 4096, 4096)):
        assert cost(kernel, measured).seconds > 1.2 * cost(kernel, H200).seconds
    assert cli.main(["targets"]) == 0
    shown = capsys.readouterr().out
    assert "H200 on NVIDIA H200" in shown
    assert shown.count("50 %") == len(calibration.FIGURES)
    assert target("A100") is targets()["A100"]


def test_a_damaged_record_says_so(tmp_path: Path) -> None:
    path = tmp_path / calibration.FILE
    path.write_text("[]")
    with pytest.raises(InvalidInput, match="no record of `emmy-eq targets calibrate`"):
        calibration.read(path)


def test_without_a_gpu_the_reason_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert cli.main(["targets", "calibrate", "--store", str(tmp_path / "t.sqlite")]) == NoDevice.exit_code
    assert "No CUDA device: targets calibrate needs one" in capsys.readouterr().err
