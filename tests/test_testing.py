"""The public `emmy_eq.testing`, rules from outside, suggestions, and the chain of rules that `explain` prints."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import emmy_eq
from emmy_eq import extensions, loop_ir, ops, rules
from emmy_eq.algebra import Axes, Val
from emmy_eq.cli import main
from emmy_eq.extract.targets import target
from emmy_eq.rule import Equation, Rounding, rewrite, rule
from emmy_eq.terms import AxisTable
from emmy_eq.testing import Mismatch, Source, assert_equivalent, axes, check_program, programs, schedules, values
from emmy_eq.testing.compare import allowed, same_bits, same_numbers
from emmy_eq.testing.shrink import shrink
from emmy_eq.testing.sources import Given
from emmy_eq.torch_ir import torch_dtype

EXAMPLE = str(Path(__file__).parent.parent / "docs" / "examples" / "exponentials.py")


@settings(max_examples=30)
@given(st.data())
def test_strategies(data: st.DataObject) -> None:
    table: AxisTable = data.draw(axes())
    assert 1 <= len(table.axes) <= 4
    assert all(1 <= a.extent <= 5 for a in table.axes)
    dtype = data.draw(st.sampled_from(sorted(ops.DTYPES)))
    x = data.draw(values((2, 3), dtype, special=True))
    assert (tuple(x.shape), x.dtype) == ((2, 3), torch_dtype(dtype))


@pytest.mark.filterwarnings("ignore")  # torch warns of some of the programs that are drawn
@settings(max_examples=10)
@given(programs(), st.data())
def test_a_program_is_a_module_that_the_command_line_takes(source: Source, data: st.DataObject) -> None:
    scope: dict[str, object] = {}
    exec(str(source), scope)
    results = source.function()(*source.tensors())
    assert len(results) == len(source.results)
    given_inputs = scope["example_inputs"]
    assert isinstance(given_inputs, tuple)
    for x, again in zip(source.tensors(), given_inputs, strict=True):
        assert torch.equal(x.nan_to_num(), again.nan_to_num())


def test_schedules_are_those_of_the_kernel() -> None:
    (kernel,) = emmy_eq.compile(lambda x: torch.softmax(x, -1), (torch.randn(4, 64),)).loop_ir.kernels
    names = {axis.name for s in loop_ir.walk(kernel.body) if isinstance(s, loop_ir.Loop | loop_ir.Fold) for axis in s.axes}

    @settings(max_examples=5)
    @given(schedules(kernel, target("sm_90a")))
    def check(row: object) -> None:
        assert {name for name in names if f"{name}:" in str(row)}

    check()


def test_bits_and_numbers() -> None:
    zero, minus = np.zeros(1, np.float32), -np.zeros(1, np.float32)
    assert same_bits(zero, zero) is None
    assert (same_bits(zero, minus) or "").startswith("0.0 instead of -0.0")
    exact = allowed(zero, zero, 0.0)
    assert same_numbers(zero, minus, exact) is None
    assert same_numbers(zero + float("nan"), zero, exact) is not None
    assert same_numbers(zero + float("inf"), zero - float("inf"), exact) is not None


def test_equivalence_by_value_and_by_rules() -> None:
    x = (torch.randn(4, 5), torch.randn(5, 3), torch.randn(5, 3))
    assert_equivalent(lambda a, b, c: a @ b + a @ c, lambda a, b, c: a @ (b + c), x, rules=rules.active())
    with pytest.raises(AssertionError, match="no rule joins result 0"):
        assert_equivalent(lambda a, b, c: a @ b + a @ c, lambda a, b, c: a @ (b + c), x, rules=rules.active("strict"))
    with pytest.raises(AssertionError, match="result 0"):
        assert_equivalent(lambda a, b, c: a @ b, lambda a, b, c: a @ c, x)


@rule(Rounding.EXACT)
def swapped(a: Val, b: Val) -> Equation:
    return rewrite(a.maximum(b), b.maximum(a))


(exp_of_sum,) = extensions.from_file(EXAMPLE)


@rule(Rounding.REASSOCIATES)
def max_of_shifted(a: Val, c: Val, k: Axes) -> Equation:
    """False where c varies along k: its guard is missing."""
    return rewrite((a + c).max(k), a.max(k) + c)


def test_a_wrong_rule_in_a_program_is_found() -> None:
    with pytest.raises(Mismatch):
        check_program(lambda x, y: (x + y).amax(1), (torch.randn(4, 5), torch.randn(4, 5)), rules=[max_of_shifted])
    check_program(lambda x, y: (x + y).amax(1), (torch.randn(4, 5), torch.randn(4, 1)))


def test_shrinking_leaves_what_fails() -> None:
    body = (("y0", "x0 * 2"), ("y1", "torch.sin(y0)"), ("y2", "y1 + x1"), ("y3", "y2.exp()"))
    source = Source((Given((4, 3), "f32", "normal", 1), Given((3,), "f32", "normal", 2)), body, ("y3", "y0"))
    small = shrink(source, lambda s: any("sin" in text for _, text in s.body))
    assert small.body == (("y0", "torch.sin(x0)"),)
    assert len(small.inputs) == 1


# -- rules from outside


def test_rules_of_a_file_take_part(capsys: pytest.CaptureFixture[str]) -> None:
    code = "torch.randn(4, 8).exp().prod(1)"
    assert main(["compile", "-c", code, "--ir", "loop"]) == 0
    assert "= prod(" in capsys.readouterr().out
    assert main(["compile", "-c", code, "--rules", EXAMPLE, "--ir", "loop"]) == 0
    assert "= prod(" not in capsys.readouterr().out
    assert main(["rules", "show", "--rules", EXAMPLE]) == 0
    assert "prod[k](exp(v)) -> exp(sum[k](v))" in capsys.readouterr().out


def test_strict_leaves_out_a_rule_of_ones_own_that_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "-c", "torch.randn(4, 8).exp().prod(1)", "--rules", EXAMPLE, "--accuracy", "strict", "--explain-accuracy"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "uses rules of these kinds: exact\n" in said.out
    assert "left out, since it does not admit them: exp_of_sum" in said.out
    assert "rule exp_of_sum is left out: accuracy strict does not admit what reassociates" in said.err
    x = torch.randn(4, 8)
    assert "= serial_prod(" in emmy_eq.compile(lambda a: a.exp().prod(1), (x,), accuracy="strict", rules=[exp_of_sum]).show("loop")
    assert swapped in emmy_eq.compile(lambda a: a + 1, (x,), accuracy="strict", rules=[swapped]).rules


BAD = {
    "there is no such file": None,
    "running it raised ZeroDivisionError": "1 / 0",
    "it defines no rule": "x = 1",
    "1 is no rule": "def rules(): return [1]",
    "calling rules() raised": "def rules(): raise OSError",
    "there is a rule 'commute_add' already": "from emmy_eq.rules import library\ndef rules(): return [library()['commute_add']]",
    "mine.py: rule odd: a must be annotated": (
        "from emmy_eq.rule import *\n\n@rule(Rounding.EXACT)\ndef odd(a) -> Equation:\n    return rewrite(a + a, a * 2.0)\n"
    ),
    "a value has no method 'prd'": (
        "from emmy_eq.algebra import Axes, Val\nfrom emmy_eq.rule import *\n\n@rule(Rounding.EXACT)\n"
        "def misspelled(a: Val, k: Axes) -> Equation:\n    return rewrite(a.prd(k), a.prod(k))\n"
    ),
    "returns rewrite(lhs, rhs) or equal(lhs, rhs)": (
        "from emmy_eq.algebra import Val\nfrom emmy_eq.rule import *\n\n@rule(Rounding.EXACT)\n"
        "def compared(a: Val, b: Val) -> Equation:\n    return a + b == b + a\n"
    ),
    "when=a > 0: a guard speaks of axes and dtypes, not of values; guards are: Val.has_dtype, ": (
        "from emmy_eq.algebra import Val\nfrom emmy_eq.rule import *\n\n@rule(Rounding.EXACT)\n"
        "def guarded(a: Val) -> Equation:\n    return rewrite(abs(a), a, when=a.gt(0))\n"
    ),
    "a comparison of a: a guard speaks of axes and dtypes": (
        "from emmy_eq.algebra import Val\nfrom emmy_eq.rule import *\n\n@rule(Rounding.EXACT)\n"
        "def guarded(a: Val, b: Val) -> Equation:\n    return rewrite(abs(a * b), a * b, when=(a > 0) & (b > 0))\n"
    ),
    "    b[] = 1.0\n": (
        "from emmy_eq.algebra import Val\nfrom emmy_eq.rule import *\n\n@rule(Rounding.EXACT)\n"
        "def wrong(a: Val, b: Val) -> Equation:\n    return rewrite(a - b, b - a)\n"
    ),
}


@pytest.mark.parametrize("why", BAD)
def test_bad_rule_files_say_why(why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, text = tmp_path / "mine.py", BAD[why]
    if text is not None:
        path.write_text(text)
    assert main(["compile", "-c", "torch.ones(3) * 2", "--rules", str(path)]) == 2
    assert why in capsys.readouterr().err


def test_installed_rules_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "exponentials:offered", extensions.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda: extensions.from_file(EXAMPLE))
    monkeypatch.setattr(extensions, "entry_points", lambda group: (entry,) if group == extensions.GROUP else ())
    extensions.installed.cache_clear()
    try:
        x = torch.randn(4, 8)
        assert "= prod(" not in emmy_eq.compile(lambda a: a.exp().prod(1), (x,)).show("loop")
        assert "= serial_prod(" in emmy_eq.compile(lambda a: a.exp().prod(1), (x,), accuracy="strict").show("loop")
    finally:
        extensions.installed.cache_clear()


# -- suggestions and explanations


def test_suggestions(capsys: pytest.CaptureFixture[str]) -> None:
    code = "a, b = torch.randn(8), torch.randn(8); (a.exp() * b.exp(), (a + b).exp())"
    assert main(["rules", "suggest", "-c", code, "--accuracy", "strict", "--json"]) == 0
    assert [s["rewrite"] for s in json.loads(capsys.readouterr().out)] == ["exp(a) * exp(b) -> exp(b + a)"]
    assert main(["rules", "suggest", "-c", code]) == 0
    assert capsys.readouterr().out.startswith("Nothing")
    assert main(["rules", "suggest"]) == 2


def test_suggestions_have_guards(capsys: pytest.CaptureFixture[str]) -> None:
    """The division of a sum by what does not vary along it, under rules that do not reassociate."""
    code = "x, s = torch.randn(4, 5), torch.randn(4, 1); ((x / s).sum(1), x.sum(1) / s[:, 0])"
    assert main(["rules", "suggest", "-c", code, "--accuracy", "strict", "--json"]) == 0
    found = [s["rewrite"] for s in json.loads(capsys.readouterr().out)]
    assert "sum[k](a / b) -> sum[k](a) / b   where b is free of k" in found


def test_explanations_chain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-c", "torch.softmax(torch.randn(4, 8), -1)", "--json"]) == 0
    chain = json.loads(capsys.readouterr().out)
    assert [s["rule"] for s in chain] == ["multiply_by_reciprocal", "twist_softmax"]
    assert chain[0]["after"] == chain[1]["before"]
    assert "twist" in chain[1]["after"]
    before, after = (set(chain[0][side].splitlines()) for side in ("before", "after"))
    assert {line.split()[2] for line in before ^ after} == {"div", "mul", "reciprocal"}  # nothing else is renamed
    assert main(["compile", "-c", "torch.softmax(torch.randn(4, 8), -1)", "--ir", "loop"]) == 0
    assert capsys.readouterr().out.strip() == chain[1]["after"].strip()
    assert main(["explain", "-c", "torch.randn(4, 8) + 1"]) == 0
    assert capsys.readouterr().out.startswith("No rule made a difference")
