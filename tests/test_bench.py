"""The benchmark's own arithmetic, on the CPU: names, the float64 reference, sampling, the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import emmy_eq
from bench import __main__ as command
from bench import ended, rows, sweep
from bench.compare import Entry, Row, in_float64, relative_error
from bench.workloads import In, Workload, causal_attention, select, workloads
from emmy_eq.errors import NoDevice
from emmy_eq.timing import Times


def test_names_are_unique_and_selectable() -> None:
    assert len(workloads()) == 29
    assert [w.name for w in select(["rmsnorm_bf16"])] == ["rmsnorm_bf16_16384x4096"]
    assert len(select([])) == 29
    assert len(workloads(more=True)) == len(select([], more=True)) == 64
    assert not set(workloads()) & set(workloads(more=True))


def test_module_and_inputs_are_drawn_the_same_each_time() -> None:
    w = workloads()["linear_f32_32x3584x3584"]
    a, b = w.function("cpu"), w.function("cpu")
    assert torch.equal(next(iter(a.parameters())), next(iter(b.parameters())))  # type: ignore[attr-defined]
    assert torch.equal(w.inputs[0].draw("cpu", 3), w.inputs[0].draw("cpu", 3))


def test_skeleton_has_shapes_without_values() -> None:
    block = workloads()["llama8b_block_bf16_2048"].skeleton()
    shapes = {tuple(p.shape) for p in block.parameters()}  # type: ignore[attr-defined]
    assert (14336, 4096) in shapes
    assert all(p.dtype == torch.bfloat16 for p in block.parameters())  # type: ignore[attr-defined]


def test_reference_of_a_module_is_float64() -> None:
    layer = torch.nn.Linear(8, 4)
    x = torch.randn(3, 8)
    reference = in_float64(layer, (x,), None)
    assert reference.dtype == torch.float64
    # float32 rounding of eight products: far below 1e-6, far above the 1e-16 of float64
    assert 1e-10 < relative_error(layer(x), reference, None) < 1e-6


def test_sampled_reference_equals_the_whole() -> None:
    """The one sampled row keeps its sampled dim's positions apart, so a slice of the result is the result of the slice."""
    w = Workload("small", lambda: causal_attention, (In((2, 3, 8, 4)),) * 3, sample=(1, 1))
    inputs = tuple(spec.draw("cpu", seed) for seed, spec in enumerate(w.inputs))
    whole = in_float64(causal_attention, inputs, None)
    torch.testing.assert_close(in_float64(causal_attention, inputs, w.sample), whole[:, :1])


@pytest.mark.parametrize("name", ["crossentropy", "logsumexp", "colsum", "sum_f32_all", "softmax", "rmsnorm_bf16", "layernorm"])
def test_kernels_that_move_much_fill_the_machine(name: str) -> None:
    """A kernel of 64 MB on few threads takes a hundred times its roofline; cross-entropy in one block took longer than a second."""
    (w,) = select([name])
    program = emmy_eq.compile(w.skeleton(), tuple(spec.blank() for spec in w.inputs))
    for planned, kernel in zip(program.plan.kernels, program.kernel_ir, strict=True):
        threads = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] * kernel.threads
        assert planned.cost.bytes < 64 << 20 or threads >= 256 * program.target.sms


def test_report_gives_ratios_and_reasons() -> None:
    good = Entry(Times(20.0, 30.0), 1e-7, 0.1)
    ours = Entry(Times(10.0, 15.0), 2e-7, 0.2)
    bad = Entry(None, None, 0.0, "Unsupported: fft")
    rows = [Row(name, {"eager": good, "compile": good, "emmy_eq": entry}) for name, entry in (("a", ours), ("b", bad))]
    text = command.report(rows)
    line = text.splitlines()[2].split()
    assert line[:6] == ["a", "20.0", "20.0", "10.0", "2.00", "2.00"]
    assert text.splitlines()[-1] == "b: emmy_eq: Unsupported: fft"


def test_without_a_gpu_the_reason_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert ended(lambda: command.main(["gelu"])) == NoDevice.exit_code
    assert "No CUDA device: python -m bench needs one" in capsys.readouterr().err


def test_a_calibration_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["--calibration", str(tmp_path / "targets.json")])
    assert stop.value.code == 2
    assert "targets.json: there is no such file" in capsys.readouterr().err


def test_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["nosuch"])
    assert stop.value.code == 2
    assert "no workload has nosuch in its name" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "more"), [("h200", False), ("more-h200", True)])
def test_committed_results_read_back(name: str, more: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parent.parent / f"bench/results/{name}.jsonl"
    assert command.main(["--read", str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(workloads(more))
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(Row.read(r).record().items() <= r.items() for r in records)


@pytest.mark.parametrize(
    ("main", "option"), [(command.main, "--read"), (command.main, "--model-error"), (sweep.main, "--read"), (rows.main, "--read")]
)
def test_a_file_that_is_not_one_of_records_is_refused(
    main: Callable[[list[str]], int], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("no JSON\n")
    other.write_text('{"program": "of another kind"}\n')
    for path, why in ((tmp_path / "missing", "No such file"), (tmp_path, "directory"), (text, "JSON"), (other, "another kind of file")):
        with pytest.raises(SystemExit) as stop:
            main([option, str(path)])
        assert stop.value.code == 2
        assert why in capsys.readouterr().err


def test_plot_has_a_bar_and_its_ratio_for_each_workload(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    entry, failed = Entry(Times(4.0, 5.0), 1e-7, 1.0), Entry(None, None, 1.0, "out of memory")
    rows = [
        Row("quick", {"eager": entry, "compile": Entry(Times(3.0, 4.0), 1e-7, 1.0), "emmy_eq": Entry(Times(2.0, 5.0), 1e-7, 1.0)}),
        Row("only_eager", {"eager": entry, "compile": failed, "emmy_eq": Entry(Times(8.0, 9.0), 1e-7, 1.0)}),
        Row("not_ours", {"eager": entry, "compile": entry, "emmy_eq": failed}),
    ]
    file, picture = tmp_path / "results.jsonl", tmp_path / "speed.svg"
    file.write_text("".join(json.dumps(row.record() | {"device": "a GPU"}) + "\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "select", lambda *_: [Workload(row.workload, lambda: torch.relu, ()) for row in rows])
        assert command.main(["--read", str(file), "--plot", str(picture)]) == 0
    drawn = picture.read_text()
    assert all(text in drawn for text in ("on a GPU", "quick", " 2.00", " 1.50", "only_eager", " 0.50"))
    assert "not_ours" not in drawn
    assert drawn.count(" 0.50") == 1
