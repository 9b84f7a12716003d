"""What saturation derives, what it must not, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from emmy_eq import egraph, ops, probe, rules
from emmy_eq import index as ix
from emmy_eq.algebra import Val
from emmy_eq.egraph import Limits, Saturated, saturate
from emmy_eq.lower import lower, norms, reductions
from emmy_eq.lower.attention import attention
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.lower.products import matmul
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.readback import Inconsistent
from emmy_eq.rule import Equation, Rounding, rewrite, rule
from emmy_eq.terms import to_bits
from emmy_eq.to_terms import to_terms
from emmy_eq.torch_ir import capture, capture_code
from emmy_eq.verify.audit import audit

from .rule_programs import masks_of_sums, members, saturated, through
from .term_checks import program


def has_twist(s: Saturated, cls: int, name: str = "softmax") -> bool:
    return any(n.attr[0] == name for n in members(s, cls, "twist"))


def one_pass_attention(s: Saturated, cls: int) -> bool:
    """Whether a quotient of two twisted sums with one key is in the class."""
    return any(
        has_twist(s, top) and has_twist(s, bottom)
        for top, bottom in (n.children for n in members(s, cls, "div"))
        if {n.children[0] for n in members(s, top, "twist")} & {n.children[0] for n in members(s, bottom, "twist")}
    )


def three_pass_attention(s: Saturated, cls: int) -> bool:
    """Whether the weighted sum of a quotient of plain exponentials is still there."""
    products = through(s, cls, ("reduce",))
    return any(members(s, e, "exp") for p in products for q in through(s, p, ("mul",)) for e in through(s, q, ("div",)))


def qkv(b: Builder, heads: int = 4, shared: int = 4, dtype: str = "f32") -> list[Value]:
    return [b.input(n, (2, h, 8, 16), dtype) for n, h in (("q", heads), ("k", shared), ("v", shared))]


def plain_attention(b: Builder, dtype: str = "f32") -> Value:
    q, k, v = qkv(b, dtype=dtype)
    scores = b.apply("mul", matmul(b, q, b.permute(k, [0, 1, 3, 2])), 0.25)
    return matmul(b, norms.softmax(b, scores, 3), v)


def test_attention_is_one_pass_and_three() -> None:
    b = Builder()
    s = saturated(b, plain_attention(b))
    assert one_pass_attention(s, s.roots[0])
    assert three_pass_attention(s, s.roots[0])
    assert s.report.saturated


@pytest.mark.parametrize("kind", ["plain", "mask", "bool mask", "causal", "gqa"])
def test_safe_attention_is_one_pass(kind: str) -> None:
    b = Builder()
    q, k, v = qkv(b, shared=2 if kind == "gqa" else 4)
    mask = b.input("m", (8, 8), "bool" if kind == "bool mask" else "f32") if "mask" in kind else None
    s = saturated(b, attention(b, q, k, v, mask, is_causal=kind == "causal", enable_gqa=kind == "gqa"))
    chosen = list(through(s, s.roots[0], ("where",)))
    assert any(one_pass_attention(s, c) for c in chosen)
    assert any(three_pass_attention(s, c) for c in chosen)
    assert audit(s) is None


def test_attention_in_bf16_is_one_pass_once_round_trips_are_dropped() -> None:
    b = Builder()
    s = saturated(b, plain_attention(b, "bf16"))
    assert any(one_pass_attention(s, c) for c in through(s, s.roots[0], ("cast",)))
    assert audit(s) is None


def test_logsumexp_is_one_pass() -> None:
    b = Builder()
    s = saturated(b, reductions.logsumexp(b, b.input("x", (4, 8), "f32"), [1]))
    sums = [c for log in through(s, s.roots[0], ("add",)) for where in through(s, log, ("log",)) for c in through(s, where, ("where",))]
    assert any(has_twist(s, c) for c in sums)
    assert audit(s) is None


def test_row_scale_commutes_out_of_a_product() -> None:
    b = Builder()
    x, w, m = b.input("x", (8, 16), "f32"), b.input("w", (16,), "f32"), b.input("m", (16, 32), "f32")
    s = saturated(b, matmul(b, norms.rms_norm(b, x, (16,), w), m))
    scaled = [n.children for n in members(s, s.roots[0], "mul")]
    assert any(members(s, r, "rsqrt") and masks_of_sums(s, product) for r, product in scaled)


def test_a_chain_of_products_reassociates() -> None:
    b = Builder()
    x, y, z = b.input("x", (8, 3), "f32"), b.input("y", (3, 9), "f32"), b.input("z", (9, 5), "f32")
    s = saturated(b, matmul(b, matmul(b, x, y), z), matmul(b, x, matmul(b, y, z)))
    assert s.roots[0] == s.roots[1]
    assert len(masks_of_sums(s, s.roots[0])) == 3  # over either inner axis last, or both at once


def test_low_rank_update_either_way() -> None:
    b = Builder()
    x, w, p, q = (b.input(n, shape, "f32") for n, shape in (("x", (8, 16)), ("w", (16, 12)), ("p", (16, 2)), ("q", (2, 12))))
    apart = b.apply("add", matmul(b, x, w), matmul(b, matmul(b, x, p), q))
    joint = matmul(b, x, b.apply("add", w, matmul(b, p, q)))
    s = saturated(b, apart, joint)
    assert s.roots[0] == s.roots[1]


def test_spellings_of_a_sum_are_one_class() -> None:
    b = Builder()
    x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
    twice = b.apply("add", x, x)
    s = saturated(b, b.apply("add", twice, y), b.apply("add", y, twice), accuracy="strict")
    assert s.roots[0] == s.roots[1]


def test_equal_subterms_are_one_class() -> None:
    b = Builder()
    x = b.input("x", (8,), "f32")
    s = saturated(b, b.apply("add", b.apply("mul", x, x), b.apply("mul", x, x)), accuracy="strict")
    ((left, right),) = {n.children for n in members(s, s.roots[0], "add")}
    assert left == right


@pytest.mark.parametrize(
    ("op", "args", "like"),
    [("div", "xx", "one"), ("mul", "x0", "zero"), ("add", "x0", "x"), ("mul", "ey", "exp of product"), ("mul", "dy", "x")],
    ids=["x/x = 1", "x*0 = 0", "x+0 = x", "exp(x)*exp(y) = exp(x*y)", "(x//y)*y = x"],
)
def test_not_provable(op: str, args: str, like: str) -> None:
    b = Builder()
    x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
    values: dict[str, Value | float] = {"x": x, "0": 0.0}
    values |= {"e": b.apply("exp", x), "d": b.apply("floordiv", x, y), "y": b.apply("exp", y) if "e" in args else y}
    left = b.apply(op, *(values[a] for a in args))
    right = {
        "one": b.full((8,), 1.0, "f32"),
        "zero": b.full((8,), 0.0, "f32"),
        "x": b.apply("neg", b.apply("neg", x)),
        "exp of product": b.apply("exp", b.apply("mul", x, y)),
    }[like]
    s = saturated(b, left, right, accuracy="fast")
    assert s.roots[0] != s.roots[1]


def test_adding_negative_zero_is_provable() -> None:
    b = Builder()
    x = b.input("x", (8,), "f32")
    s = saturated(b, b.apply("add", x, -0.0), b.apply("neg", b.apply("neg", x)), accuracy="strict")
    assert s.roots[0] == s.roots[1]


@rule(Rounding.EXACT)
def drop_addend(a: Val, b: Val) -> Equation:
    """Wrong, of course."""
    return rewrite(a + b, a)


@rule(Rounding.EXACT)
def forget_comparison(a: Val, b: Val) -> Equation:
    """Ill-typed."""
    return rewrite(a.lt(b), a)


def test_two_constants_in_one_class_stop_the_run_with_both_terms() -> None:
    b = Builder()
    x = b.input("x", (8,), "f32")
    terms = to_terms(program(b, b.apply("mul", b.apply("add", x, 1.0), b.apply("add", x, 2.0))))
    with pytest.raises(Inconsistent, match="two constants") as caught:
        saturate(terms, (*rules.active(), drop_addend))
    assert {caught.value.first, caught.value.second} == {"f32(1.0)", "f32(2.0)"}


def test_two_dtypes_in_one_class_stop_the_run_with_both_terms() -> None:
    b = Builder()
    x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
    terms = to_terms(program(b, b.cast(b.apply("lt", x, y), "f32")))
    with pytest.raises(Inconsistent, match="dtypes f32 and bool"):
        saturate(terms, (*rules.active(), forget_comparison))


def test_constants_fold() -> None:
    b = Builder()
    x = b.input("x", (8,), "f32")
    s = saturated(b, b.apply("mul", x, b.apply("sub", 3.0, b.apply("sqrt", b.full((8,), 4.0, "f32")))), accuracy="strict")
    assert members(s, s.roots[0], "load")  # x * 1 is x


@pytest.mark.parametrize("value", [0.0, 1.0, 3.0])
def test_a_sum_of_constants_folds_and_does_not_grow(value: float) -> None:
    # 0 = sum of 0 * n for every n: rewritten as other products are, a constant 0 never ends.
    b = Builder()
    total = b.reduce("sum", b.apply("mul", b.full((4, 6), value, "f32"), 2.0), [0, 1])
    s = saturated(b, total, b.reduce("sum", b.apply("mul", b.input("x", (4, 6), "f32"), value), [0]))
    assert s.report.saturated
    assert {n.attr for n in members(s, s.roots[0], "lit")} == {to_bits("f32", 48 * value)}
    assert audit(s) is None


@rule(Rounding.REASSOCIATES)
def regroup_scales(a: Val, b: Val, c: Val) -> Equation:
    """Beside x * 1 = x it never ends: x = (x*1)*1 = x*(1*1) = (x*(1*1))*1 = ..."""
    return rewrite((a * b) * c, a * (b * c), when=(a.free - (b.free | c.free)).not_empty())


def test_a_rule_without_end_is_stopped_and_named() -> None:
    trapezoid = Compiled(lambda: capture_code("torch.trapezoid(torch.randn(4, 6))"), Options())
    report = saturate(trapezoid.terms, (*rules.active(), regroup_scales)).report
    assert (report.stopped, report.most) == ("rows", "regroup_scales")


@rule(Rounding.REASSOCIATES)
def regroup(a: Val, b: Val, c: Val) -> Equation:
    """Beside commutativity, a product of n factors has 3^n forms."""
    return rewrite((a * b) * c, a * (b * c))


def test_a_step_that_outgrows_memory_is_met_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    product = b.input("x0", (4,), "f32")
    for n in range(1, 18):
        product = b.apply("mul", product, b.input(f"x{n}", (4,), "f32"))
    terms = to_terms(program(b, product))
    report = saturate(terms, (*rules.active(), regroup), Limits(rows=10**9, megabytes=60), certified=False).report
    assert (report.stopped, report.most) == ("megabytes", "regroup")
    assert saturate(terms, rules.active(), certified=False).report.saturated
    monkeypatch.setattr(probe, "START", 1e-3)  # it does not begin in time
    assert saturate(terms, rules.active(), Limits(seconds=0.0), certified=False).report.stopped == "seconds"


def test_memory_that_the_process_had_before_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([9_000.0, 9_000.0, 9_500.0])
    monkeypatch.setattr(egraph, "_peak", lambda: next(peaks, 9_500.0))
    b = Builder()
    terms = to_terms(program(b, plain_attention(b)))
    assert saturate(terms, rules.active(), Limits(megabytes=8_000)).report.stopped is None
    peaks = iter([9_000.0, 9_500.0])
    assert saturate(terms, rules.active(), Limits(megabytes=400)).report.stopped == "megabytes"


def test_limits_are_reported() -> None:
    b = Builder()
    terms = to_terms(program(b, plain_attention(b)))
    few_rounds = saturate(terms, rules.active(), Limits(rounds=1)).report
    few_rows = saturate(terms, rules.active(), Limits(rows=10)).report
    assert (few_rounds.saturated, few_rounds.stopped) == (False, "rounds")
    assert (few_rows.saturated, few_rows.stopped) == (False, "rows")


def test_what_the_last_step_made_is_analyzed() -> None:
    """A limit that is foreseen ends the rounds between two steps: the terms of the last one have a dtype too."""

    def twice(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.silu(x @ a * 0.1) * (x @ b)
        return torch.nn.functional.smooth_l1_loss(y, y * 0.5) + (torch.nn.functional.silu(y @ c * 0.1) * (y @ d)).mean()

    shapes = ((3, 1), (1, 2), (1, 2), (2, 2), (2, 2))
    terms = to_terms(lower(capture(twice, tuple(torch.randn(s, dtype=torch.float64) for s in shapes))))
    assert saturate(terms, rules.active("fast"), Limits(rows=500)).report.stopped == "rows"


def test_report_counts_rows_and_matches() -> None:
    b = Builder()
    s = saturated(b, plain_attention(b))
    assert s.report.rows == sum(map(len, s.classes))
    assert s.report.classes == len(s.classes) == len(s.free) == len(s.dtype)
    assert s.report.matches["twist_softmax"] >= 1


def test_roots_come_first_and_seams_keep_their_names() -> None:
    b = Builder()
    x = b.input("x", (4, 8), "f32")
    total = b.reduce("sum", x, [1])
    s = saturated(b, b.apply("exp", total), total)
    assert s.roots[0] == 0
    assert {seam.cls for seam in s.seams} >= set(s.roots)
    assert all(sum(a.bit for a in seam.axes) & s.free[seam.cls] == s.free[seam.cls] for seam in s.seams)


def test_a_stored_value_is_read_under_its_axes_with_its_class_last() -> None:
    b = Builder()
    s = saturated(b, b.apply("exp", b.reduce("sum", b.input("x", (4, 8), "f32"), [1])))
    (total,) = {c for c in through(s, s.roots[0], ("exp",)) if masks_of_sums(s, c)}
    reads = [n for n in members(s, total, "load") if n.attr[0] == "stored"]
    assert {n.children for n in reads} == {(total,)}
    assert {n.attr[1:] for n in reads} == {(s.free[total], tuple(ix.var(a.name) for a in s.axes.of(s.free[total])))}


def test_round_trips_through_two_types_are_two_members() -> None:
    b = Builder()
    x = b.input("x", (8,), "f32")
    s = saturated(b, b.apply("exp", b.cast(b.cast(x, "f16"), "f32")), b.apply("exp", b.cast(b.cast(x, "bf16"), "f32")))
    (value,) = through(s, s.roots[0], ("exp",))
    assert len(members(s, value, "cast")) == 2


PRINTER = """
from tests.test_egraph import *
b = Builder()
print(saturated(b, plain_attention(b)).classes)
"""


def test_class_numbers_do_not_depend_on_the_run() -> None:
    root = Path(__file__).parents[1]
    texts = {
        subprocess.run(
            [sys.executable, "-c", PRINTER], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            cwd=root, check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1


@pytest.mark.parametrize("name", ops.twists())
def test_every_twist_has_its_rule(name: str) -> None:
    assert (f"twist_{name}" in rules.library()) == ops.twists()[name].folds


def test_variance_is_one_pass() -> None:
    b = Builder()
    s = saturated(b, reductions.moments(False, False)(b, b.input("x", (4, 8), "f32"), [1]))
    assert any(has_twist(s, c, "variance") for c in through(s, s.roots[0], ("div",)))
    assert audit(s) is None


def test_scaled_norm_is_one_pass() -> None:
    b = Builder()
    x = b.input("x", (4, 8), "f32")
    scaled = b.apply("div", x, b.reduce("max", b.apply("abs", x), [1], True))
    s = saturated(b, b.reduce("sum", b.apply("mul", scaled, scaled), [1]))
    assert has_twist(s, s.roots[0], "norm")
    assert audit(s) is None
