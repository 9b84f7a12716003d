"""Tuning on the device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import emmy_eq
from emmy_eq.codegen.tune import tune
from emmy_eq.codegen.tune.session import GPU
from emmy_eq.codegen.tune.watchdog import LocalWorker
from emmy_eq.extract.store import Store
from emmy_eq.extract.targets import Target, targets
from emmy_eq.loop_ir import Kernel
from tests.gpu.planted import LOG
from tests.loop_samples import all_samples, attention, matmul, norm_linear, rmsnorm, softmax


def here() -> Target:
    """The record of this device: its name is in the device's, else its architecture fits."""
    name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    named = [t for t in targets().values() if t.name.removeprefix("RTX") in name]
    fitting = [t for t in targets().values() if t.arch.rstrip("a") == f"sm_{major}{minor}"]
    return (named or fitting)[0]


def test_tuned_rms_norm_is_taken_by_the_next_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.randn(1, 512, 2304, device="cuda"), torch.randn(2304, device="cuda")
    compiled = emmy_eq.compile(lambda x, w: torch.nn.functional.rms_norm(x, (2304,), w), (x, w), target=here().name)
    path = tmp_path / "t.sqlite"
    (tuned,) = tune(compiled.launched, here(), path, rows=12).kernels
    assert tuned.measured == 12
    assert tuned.default is not None
    assert tuned.best is not None
    assert tuned.best.microseconds <= tuned.default.microseconds
    monkeypatch.setenv("EMMY_EQ_STORE", str(path))
    again = emmy_eq.compile(lambda x, w: torch.nn.functional.rms_norm(x, (2304,), w), (x, w), target=here().name)
    assert str(again.tile_ir[0].schedule) == tuned.best.key.schedule
    wanted = torch.nn.functional.rms_norm(x.double(), (2304,), w.double())
    # Row sums of 2304 squares in another order than eager's: sqrt(2304) roundings at most.
    assert (again(x, w).double() - wanted).abs().max() <= 48 * torch.finfo(torch.float32).eps * wanted.abs().max()


def test_a_faulting_and_an_endless_kernel_do_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    path = tmp_path / "t.sqlite"
    kernel = softmax(512, 1000)
    (tuned,) = tune((kernel,), here(), path, rows=5, row_seconds=20.0, factory="tests.gpu.planted:Planted").kernels
    assert [m.outcome for m in tuned.marks] == ["fault", "hang"]
    assert tuned.best is not None
    with Store(path) as store:
        assert [m.outcome for m in store.all()] == ["passed", "fault", "hang", "passed", "passed"]


CLI = [sys.executable, "-m", "emmy_eq", "tune", "-c", "torch.softmax(torch.randn(512, 3000), -1)", "--rows", "40"]


def test_a_killed_run_loses_no_row_and_the_next_goes_on(tmp_path: Path) -> None:
    """``kill -9`` at the first rows, then at the fourth row of the run that goes on."""
    path = tmp_path / "t.sqlite"
    said: list[str] = []
    for rows in (2, 4):
        run = subprocess.Popen(
            CLI, env=os.environ | {"EMMY_EQ_STORE": str(path)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert run.stderr is not None
        found = []
        for line in run.stderr:
            found += [line.split("  ")[-1].strip()] if "/40  " in line else []
            if len(found) == rows:
                break
        run.send_signal(signal.SIGKILL)
        found += [line.split("  ")[-1].strip() for line in run.stderr.read().splitlines() if "/40  " in line]
        run.wait()
        run.stderr.close()
        said += found
        with Store(path) as store:
            assert set(said) <= {m.key.schedule for m in store.all()}
    assert len(set(said)) == len(said) >= 6  # none was measured twice


class Counted(LocalWorker):
    """``asked``: how many rows it was asked to measure."""

    def __init__(self, device: int) -> None:
        super().__init__(GPU, device)
        self.asked = 0

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        self.asked += "measure" in question
        return super().ask(question, seconds)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_rows_are_shared_out_among_two_devices(tmp_path: Path) -> None:
    workers = [Counted(0), Counted(1)]
    kernels = (rmsnorm(512, 2304), softmax(512, 3000))
    done = tune(kernels, here(), tmp_path / "t.sqlite", rows=6, workers=workers).kernels
    assert [k.marks for k in done] == [(), ()]
    assert min(w.asked for w in workers) >= 3
    assert sum(w.asked for w in workers) == sum(k.measured for k in done) == 12
    with Store(tmp_path / "t.sqlite") as store:
        assert len({m.key for m in store.all()}) == 12
        assert {m.outcome for m in store.all()} == {"passed"}


LARGE = {
    "rmsnorm": rmsnorm(512, 2304),
    "matmul": matmul(512, 768, 640),
    "matmul_bf16": matmul(512, 768, 640, "bf16"),
    "norm_linear": norm_linear(128, 512, 768),
    "attention": attention(4, 256, 256, 64),
}


@pytest.mark.parametrize("kernels", [all_samples(), LARGE], ids=["small", "large"])
def test_every_row_that_the_families_propose_is_right(kernels: dict[str, Kernel], tmp_path: Path) -> None:
    # Times do not matter here, so that several workers share the device.
    done = tune(tuple(kernels.values()), here(), tmp_path / "t.sqlite", rows=4, workers=[LocalWorker(GPU, 0) for _ in range(6)])
    assert [(k.kernel, m.key.schedule, m.outcome, m.note, m.error) for k in done.kernels for m in k.marks] == []
    assert [k.kernel for k in done.kernels if k.best is None] == []
