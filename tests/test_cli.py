"""The command line: what it prints, its JSON, its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emmy_eq import cli
from emmy_eq.errors import NoDevice

ROOT = Path(__file__).parent.parent


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out = capsys.readouterr()
    return code, out.out, out.err


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code, out, err = run(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_help_answers_without_torch() -> None:
    """Ten times less than importing torch takes; the bound allows for a busy machine."""
    start = time.perf_counter()
    script = "import sys; from emmy_eq import cli; cli.parser().format_help(); assert not {'torch', 'numpy', 'egglog'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
    assert time.perf_counter() - start < 1.0


BAD: dict[str, tuple[list[str], str]] = {
    "no program": (["compile"], "give either -c CODE or FILE.py:NAME"),
    "two programs": (["compile", "-c", "1", "a.py:f"], "give either -c CODE or FILE.py:NAME"),
    "name": (["compile", "-c", "nosuch(torch.randn(4))"], "nosuch"),
    "shape": (["compile", "-c", "torch.randn(2, 3) @ torch.randn(4, 5)"], "Invalid input"),
    "no tensor": (["compile", "-c", "1 + 1"], "Invalid input"),
    "target": (["compile", "-c", "torch.randn(4).exp()", "--target", "sm_13"], "sm_13"),
    "accuracy": (["compile", "-c", "torch.randn(4).exp()", "--accuracy", "exact"], "strict, default, fast"),
    "place": (["compile", "-c", "torch.randn(4).exp()", "--place", "maybe"], "auto, fuse, cut"),
    "seam": (["compile", "-c", "torch.randn(4).exp()", "--place", "nosuch=cut"], "nosuch"),
    "choice": (["compile", "-c", "torch.randn(4).exp()", "--place", "exp=maybe"], "maybe"),
    "schedule": (["compile", "-c", "torch.randn(4).exp()", "--schedule", "WORK=t3"], "WORK=t3"),
    "schedule items": (["compile", "-c", "torch.randn(4).exp()", "--schedule", "WORK=t32 ..."], "WORK= TILE= REDUCE= STAGE= RASTER="),
    "no schedule": (["compile", "-c", "torch.randn(4).exp()", "--schedule", " "], "--ir tile prints the row in use"),
    "schedule axes": (["compile", "-c", "torch.randn(4).exp()", "--schedule", "WORK=t32 TILE=i7:t32"], "i0; legal is for example 'WORK="),
    "no seam": (["compile", "-c", "torch.randn(4).exp()", "--place", "exp=cut,"], "'' is not SEAM=fuse or SEAM=cut"),
    "pinned twice": (["compile", "-c", "torch.randn(4).exp()", "--place", "exp=cut,exp=fuse"], "contradicts another pin"),
    "inputs": (["compile", "-c", "torch.randn(4).exp()", "--inputs", "torch.randn(4)"], "FILE.py:NAME"),
    "schedule names": (["compile", "-c", "torch.randn(4).exp()", "--schedule", "WORK=t32", "--schedule", "WORK=t64"], "kernel's name"),
    "schedule word": (["compile", "-c", "torch.randn(4).exp()", "--schedule", "fast"], "'fast': it has no KEY=VALUE, as 'WORK=t256 "),
    "file": (["compile", "nosuch.py:f"], "FILE.py:NAME"),
    "no name": (["compile", __file__], "test_cli.py defines run, "),
    "rule": (["rules", "show", "factor_sum"], "the nearest names are factor_into_sum"),
    "rule name": (["rules", "show"], "which rule"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_paragraph_and_exit_code_2(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = BAD[case]
    code, out, err = run(capsys, *words)
    assert code == 2, err
    assert out == ""
    assert expected in err
    assert "Traceback" not in err
    assert err.strip().count("\n") == 0


@pytest.mark.parametrize(
    ("words", "hint"), [(["--inptus", "1"], "--inptus is not known here; did you mean --inputs?"), (["--zzz"], "--zzz is not known here\n")]
)
def test_an_unknown_option_is_the_commands_own(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explain", "-c", "1", *words])
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert err.startswith("usage: emmy-eq explain")
    assert hint in err


def test_a_syntax_error_shows_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\ndef f(x):\n    return x +* 2\n")
    said = [
        run(capsys, "compile", "-c", "x = torch.randn(4)\nx +* 2"),
        run(capsys, "compile", f"{file}:f"),
        run(capsys, "rules", "list", "--rules", str(file)),
        run(capsys, "compile", f"{__file__}:f", "--inputs", "1 +* 2"),
    ]
    begins = ["line 2 of the code", f"{file}:3", f"rule file {file}:3", "--inputs"]
    lines = [("x +* 2", 3), ("return x +* 2", 10), ("return x +* 2", 10), ("1 +* 2", 3)]
    for (code, out, err), place, (line, caret) in zip(said, begins, lines, strict=True):
        assert (code, out) == (2, "")
        assert err == f"emmy-eq: Invalid input: {place}: invalid syntax.\n    {line}\n    {' ' * caret}^\n"


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "explore" in err


def test_options_are_judged_before_torch_is_imported() -> None:
    bad = "'compile', '-c', 'torch.randn(4).exp()', '--target', 'sm_13'"
    script = f"import sys; from emmy_eq import cli; assert cli.main([{bad}]) == 2; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("compile", "-c", "torch.randn(4).exp()")
    assert run(capsys, *words)[2] == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, out, err = run(capsys, *words)
    assert "e-graph ..." in err
    assert err.endswith("\r\x1b[K")
    assert "..." not in out


def test_progress_says_how_far_a_stage_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("emmy_eq.progress._OFTEN", 0.0)
    _, _, err = run(capsys, "compile", "-c", "torch.randn(64, 64) @ torch.randn(64, 64) @ torch.randn(64, 64)")
    assert re.search(r"e-graph: round 2, \d+ rows", err)
    assert re.search(r"searching plans: \d kernels, [\d.]+ us; \d+ plans tried", err)


def test_debug_gives_the_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emmy_eq", "compile", "-c", "torch.randn(4).exp()", "--place", "maybe", "--debug"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_unsupported_operation_is_named_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "compile", "-c", "torch.fft.fft(torch.randn(8)).real")
    assert code == 1
    assert "fft" in err
    assert "Traceback" not in err


def test_json_has_the_stated_fields(capsys: pytest.CaptureFixture[str]) -> None:
    record = run_json(capsys, "compile", "-c", "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16))", "--target", "sm_80")
    (kernel,) = record["kernels"]
    assert {"name", "identity", "loop_ops", "flops", "bytes"} <= kernel.keys()
    assert kernel["loop_ops"]["store"] == 1
    assert kernel["schedule"].startswith("WORK=t")
    assert kernel["bytes"] == 4 * (16 * 64 + 64 * 16 + 16 * 16)
    assert 2 * 16 * 64 * 16 <= kernel["flops"] <= 2 * 16 * 64 * 16 + 16 * 16  # the relu may count
    assert {"rows", "classes", "saturated", "seconds"} <= record["egraph"].keys()
    assert record["egraph"]["saturated"] is True
    assert record["search"]["plans"] >= 1
    assert record["search"]["seconds"] >= 0
    assert record["target"] == "sm_80"


def test_run_on_the_simulator_says_so_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "run", "-c", "torch.softmax(torch.randn(4, 8), -1)", "--device", "sim", "--check")
    assert code == 0
    assert "simulator" in out
    assert "float64" in out


def test_what_eager_refuses_is_the_programs_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """Integers divided by zero: undefined in CUDA, an error in torch on a CPU."""
    words = ("run", "-c", "torch.arange(4) // torch.tensor([1, 0, 2, 0])", "--device", "sim")
    assert run(capsys, *words)[0] == 0
    code, _, err = run(capsys, *words, "--check")
    assert code == 2
    assert "Invalid input: the program in eager PyTorch, which --check compares with: RuntimeError: ZeroDivisionError" in err


def test_run_json(capsys: pytest.CaptureFixture[str]) -> None:
    record = run_json(capsys, "run", "-c", "torch.randn(4, 8).sum(1)", "--device", "sim", "--check")
    assert record["device"] == "sim"
    (output,) = record["outputs"]
    assert output["shape"] == [4]
    assert output["error"] <= output["limit"]


def test_cuda_without_a_gpu_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    code, _, err = run(capsys, "run", "-c", "torch.randn(4).exp()", "--device", "cuda")
    assert code == NoDevice.exit_code
    assert err.startswith("emmy-eq: No CUDA device: --device cuda needs one")


def test_file_and_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef double(x):\n    return x + x\n\nexample_inputs = (torch.randn(8),)\n")
    record = run_json(capsys, "compile", f"{file}:double")
    assert record["kernels"][0]["loop_ops"]["store"] == 1
    given = run_json(capsys, "compile", f"{file}:double", "--inputs", "torch.randn(3, 5)")
    assert given["kernels"][0]["bytes"] == 2 * 4 * 15


def test_targets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "targets")
    assert code == 0
    assert all(name in out for name in ("sm_80", "sm_89", "sm_90a", "sm_120"))
    assert re.search(r"contraction_units f32 +tf32x3 +fma +tf32x3 +tf32x3 +fma\n", out)
    assert out.count("\n") < 40 < run(capsys, "targets", "-v")[1].count("fitted")


def test_rules_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rules", "list")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()[2:] if line]
    assert len(names) == len(set(names)) > 5
    code, out, _ = run(capsys, "rules", "show", names[0])
    assert code == 0
    assert names[0] in out


def test_rules_check_one(capsys: pytest.CaptureFixture[str]) -> None:
    record = run_json(capsys, "rules", "check", "factor_out_of_sum")
    assert record["factor_out_of_sum"]["passed"] is True


def test_verbose_shows_rewrites_as_diffs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compile", "-c", "torch.softmax(torch.randn(4, 8), -1)", "-vv")
    assert code == 0
    assert "twist_softmax: sum[k](exp(s - max[k](s)))" in out
    assert "+      carry v2, v3 = twist softmax(v1, v0)" in out
    levels = next(block for block in out.split("\n\n") if "flops on" in block).splitlines()
    assert [cell.strip() for cell in levels[0].split("  ") if cell] == ["kernel", "launches", "DRAM", "L2", "flops on fma", "flops on sfu"]
    assert levels[-1].split()[:6] == ["all", "1", "256", "B", "256", "B"]


def test_explore_lists_plans(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explore", "-c", "(torch.randn(16, 64) @ torch.randn(64, 64)) @ torch.randn(64, 16)")
    assert code == 0
    assert out.splitlines()[0].split()[:1] == ["plan"]
