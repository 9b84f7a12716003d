"""What the library of rules derives from naive spellings: one-pass forms, cheaper groupings; and what each accuracy allows."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from emmy_eq import cli, evaluate, loop_ir, rules, tensor_ir
from emmy_eq.arrays import to_numpy
from emmy_eq.egraph import saturate
from emmy_eq.extract.loops import to_loops
from emmy_eq.extract.plan import search
from emmy_eq.extract.targets import target
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.ops import ops
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.to_terms import to_terms
from emmy_eq.torch_ir import capture_code

from .plan_checks import plan
from .random_programs import build
from .rule_programs import saturated
from .term_checks import inputs_of


def folds(code: str, axis: int, place: str = "auto") -> list[tuple[str, ...]]:
    """The carries of each pass over an axis of that extent, in the program that the search chooses."""
    stmts = (s for k in to_loops(plan(code, place)).kernels for s in loop_ir.walk(k.body))
    return [tuple(c.name for c in s.carries) for s in stmts if isinstance(s, loop_ir.Fold) and any(a.extent == axis for a in s.axes)]


Array = np.ndarray[Any, Any]
LONG = 131072  # a row that registers do not hold, so that a second pass reads it again
ROWS = f"x=torch.randn(64,{LONG}); "
SCORES = "torch.randn(4,96,64)@torch.randn(4,64,256)"
ONE_PASS = {
    "softmax": (ROWS + "torch.softmax(x,1)", LONG, ("softmax",)),
    "logsumexp": (ROWS + "torch.logsumexp(x,1)", LONG, ("softmax",)),
    "naive softmax": (ROWS + "e=(x-x.amax(1,keepdim=True)).exp(); e/e.sum(1,keepdim=True)", LONG, ("softmax",)),
    "logarithm of softmax": (ROWS + "torch.softmax(x,1).log()", LONG, ("softmax",)),
    "variance": (ROWS + "x.var(1)", LONG, ("variance",)),
    "naive deviation": (ROWS + "((x-x.mean(1,keepdim=True))**2).mean(1).sqrt()", LONG, ("variance",)),
    "layer norm": (ROWS + f"F.layer_norm(x,({LONG},))", LONG, ("variance",)),
    "group norm": ("F.group_norm(torch.randn(1,8,512,512),2)", 4 * 512 * 512, ("variance",)),
    "deviation": (ROWS + "x.std(1)", LONG, ("variance",)),
    "scaled norm": (ROWS + "m=x.abs().amax(1,keepdim=True); m*(((x/m)**2).sum(1,keepdim=True)).sqrt()", LONG, ("norm",)),
    "running logsumexp": (ROWS + "m=x.amax(1,keepdim=True); (x-m).exp().cumsum(1).log()+m", LONG, ("softmax",)),
    "recurrence": (ROWS + "p=torch.rand(64,1).expand_as(x).cumprod(1); p*(x/p).cumsum(1)", LONG, ("recurrence",)),
    "max with index": (ROWS + "x.max(1)", LONG, ("max", "argmax")),
    "min with index": (ROWS + "x.min(1)", LONG, ("min", "argmin")),
    "argmin": (ROWS + "x.argmin(1)", LONG, ("argmin",)),
    "amax and scaling": (ROWS + "x/(x.abs().amax(1,keepdim=True)/448)", LONG, ("max",)),
    "argmax": (ROWS + "x.argmax(1)", LONG, ("argmax",)),
    "greatest of a normalized row": (ROWS + "(x*torch.rsqrt((x*x).mean(1,keepdim=True)+1e-6)).abs().amax(1)", LONG, ("max", "sum")),
    "cross-entropy": (ROWS + "F.cross_entropy(x,torch.arange(64))", LONG, ("softmax",)),
    "naive cross-entropy": (ROWS + "-F.log_softmax(x,1).gather(1,torch.arange(64)[:,None]).mean()", LONG, ("softmax",)),
    "logsumexp less the target": (ROWS + "(torch.logsumexp(x,1)-x[torch.arange(64),torch.arange(64)]).mean()", LONG, ("softmax",)),
    "a key that is a result": (ROWS + "x.amax(1), torch.logsumexp(x,1)", LONG, ("softmax",)),
    "a mean that is a result": (ROWS + "torch.var_mean(x,1)", LONG, ("variance",)),
}


VALUES = "torch.randn(4,256,64)"
ATTENTION = {
    "plain": f"torch.softmax({SCORES},-1)@{VALUES}",
    "soft cap": f"torch.softmax(torch.tanh({SCORES}/30)*30,-1)@{VALUES}",
    "alibi": f"torch.softmax({SCORES}+torch.randn(4,1,1)*torch.arange(256),-1)@{VALUES}",
    "mask": f"torch.softmax(({SCORES}).masked_fill(torch.randn(96,256)>1,-1e9),-1)@{VALUES}",
}


@pytest.mark.parametrize("name", ONE_PASS)
def test_one_pass(name: str) -> None:
    code, axis, carries = ONE_PASS[name]
    (only,) = folds(code, axis)
    assert sorted(only) == sorted(carries)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_pass(name: str) -> None:
    # As one kernel; with f32 products on the fma units storing the scores is about as fast, and the search is free to.
    assert folds(ATTENTION[name], 256, "fuse") == [("softmax",)]


def test_attention_of_16_bits_is_chosen_as_one_pass() -> None:
    halves = "q,k,v=(torch.randn(8,1024,64,dtype=torch.bfloat16) for _ in range(3)); "
    assert folds(halves + "torch.softmax(q@k.transpose(-1,-2)*0.125,-1)@v", 1024) == [("softmax",)]


def test_a_short_row_keeps_two_passes() -> None:
    # It stays in registers, where a second pass costs less than rescaling.
    assert folds("torch.softmax(torch.randn(65536,1024),1)", 1024) == [("max",), ("sum",)]


@pytest.mark.parametrize("size", [100, LONG])
@pytest.mark.parametrize("spelling", ["(x/m)**2", "(x/m)*(x/m)", "(x.abs()/m)**2"])
def test_a_scaled_norm_does_not_overflow(spelling: str, size: int) -> None:
    """Squares of 1e30 are beyond f32: no rule may take the scale out of them."""
    code = f"x=torch.randn(2,{size}); m=x.abs().amax(1,keepdim=True); m*({spelling}).sum(1,keepdim=True).sqrt()"
    x = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32) * np.float32(1e30)
    loops = to_loops(plan(code))
    (got,) = loop_ir.run(loops, {loops.inputs[0].name: x})
    np.testing.assert_allclose(got, np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True), rtol=1e-5)


def welford(x: Array) -> np.float32:
    """The variance of a row as eager computes it on a GPU: a chain of updates in f32, here of 32 threads, whose parts are joined."""
    f32 = np.float32
    mean: Array = np.zeros(32, f32)
    total: Array = np.zeros(32, f32)
    for n, row in enumerate(x.reshape(-1, 32), 1):
        delta = row - mean
        mean = mean + delta / f32(n)
        total = total + delta * (row - mean)
    count = f32(len(x) // 32)
    while len(mean) > 1:
        delta = mean[1::2] - mean[::2]
        total = total[::2] + total[1::2] + delta * delta * (count / f32(2))
        mean, count = mean[::2] + delta / f32(2), count * f32(2)
    return f32(total[0] / (count - f32(1)))


@pytest.mark.parametrize("size", [512, 65536])
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_a_variance_far_from_zero_is_as_good_as_eager(offset: float, size: int) -> None:
    """Two passes for the short row, one for the long."""
    made = Compiled(lambda: capture_code(f"torch.randn(4,{size}).var(1)"), Options(target="H200"))
    x = (np.random.default_rng(0).normal(size=(4, size)) + offset).astype(np.float32)
    exact = x.astype(np.float64).var(1, ddof=1)
    (got,) = made.run(dict.fromkeys(made.torch_ir.examples(), torch.from_numpy(x)))
    eager = max(abs(float(welford(row)) - e) for row, e in zip(x, exact, strict=True))
    assert np.abs(to_numpy(got) - exact).max() <= 4 * max(eager, 2e-7)


def test_a_logarithm_of_a_softmax_does_not_underflow() -> None:
    loops = to_loops(plan("torch.softmax(torch.randn(2,8),1).log()"))
    (got,) = loop_ir.run(loops, {loops.inputs[0].name: np.arange(16, dtype=np.float32).reshape(2, 8) * 50})
    np.testing.assert_allclose(got[0], np.arange(-350, 1, 50))


GROUPINGS = {
    "left, written left": "(torch.randn(64,4096)@torch.randn(4096,64))@torch.randn(64,4096)",
    "left, written right": "torch.randn(64,4096)@(torch.randn(4096,64)@torch.randn(64,4096))",
    "right, written left": "(torch.randn(4096,64)@torch.randn(64,4096))@torch.randn(4096,64)",
    "right, written right": "torch.randn(4096,64)@(torch.randn(64,4096)@torch.randn(4096,64))",
}


@pytest.mark.parametrize("name", GROUPINGS)
def test_a_chain_of_products_is_grouped_by_size(name: str) -> None:
    # Between the kernels stand 64 x 64 numbers; the other grouping would have 4096 x 4096.
    assert [b.shape for b in to_loops(plan(GROUPINGS[name])).temps] == [(64, 64)]


LOW_RANK = {
    "x@W + (x@A)@B": "x@torch.randn({k},{k}) + (x@torch.randn({k},{r}))@torch.randn({r},{k})",
    "x@(W + A@B)": "x@(torch.randn({k},{k}) + torch.randn({k},{r})@torch.randn({r},{k}))",
}


@pytest.mark.parametrize(("rows", "k", "r", "joint"), [(65536, 64, 32, True), (16, 4096, 64, False), (1, 4096, 64, False)])
def test_a_low_rank_update_is_grouped_by_size(rows: int, k: int, r: int, joint: bool) -> None:
    # Many rows share W + A@B, so that the full product is one pass; few rows take A and B one after the other, two passes over k.
    for spelling in LOW_RANK.values():
        passes = folds(f"x=torch.randn({rows},{k}); " + spelling.format(k=k, r=r), k)
        assert len(passes) == (1 if joint else 2)


@pytest.mark.parametrize("seed", range(40))
def test_strict_keeps_every_bit(seed: int) -> None:
    """Terms and chosen Loop IR under ``strict`` against Tensor IR, op by op in the same types; all three add as NumPy does."""
    made = build(Random(seed))
    given = inputs_of(made, seed)
    wanted = tensor_ir.run(made, given)
    terms = to_terms(made)
    loops = to_loops(search(saturate(terms, rules.active("strict")), target("H200")))
    for found in (evaluate.run(terms, given), loop_ir.run(loops, given)):
        for got, want in zip(found, wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got.reshape(want.shape), want)
            np.testing.assert_array_equal(np.signbit(got.reshape(want.shape)), np.signbit(want))


BITS = {
    "map": "torch.sigmoid(x)*torch.exp(x)/torch.sqrt(x.abs()+1)-torch.tanh(x)",
    "choice": "torch.where(x>0, x, -x).clamp(-1,1)+torch.relu(x)",
    "extremes": "torch.relu(x).amax(1), x.amin(0), x.argmax(1), (x>1).any(1)",
    "half": "(x.to(torch.bfloat16)*1.5+x.to(torch.bfloat16)).float()",
    "views": "x.t().contiguous().view(-1)[::3]*2, torch.cat((x,-x))",
    "quantized rows": "torch.round(x/(x.abs().amax(1,keepdim=True)/127)).to(torch.int8)",
}


@pytest.mark.parametrize("name", BITS)
def test_strict_kernels_keep_every_bit(name: str) -> None:
    """The simulator against Tensor IR, signs of zeros included."""
    code = f"x=torch.randn(7,12)*3; {BITS[name]}"
    compiled = Compiled(lambda: capture_code(code), Options(accuracy="strict"))
    given = compiled.torch_ir.examples()
    wanted = tensor_ir.run(compiled.tensor_ir, {n: to_numpy(x) for n, x in given.items()})
    for got, want in zip(compiled.run(given), wanted, strict=True):
        found = to_numpy(got)
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


def test_fast_alone_approximates() -> None:
    found = {r.name for r in rules.active("fast")} - {r.name for r in rules.active("default")}
    assert found == {f"approximate_{name}" for name, row in ops().items() if row.fast is not None}


def test_explain_accuracy_says_what_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    code = "x=torch.randn(4,8); torch.softmax(x,1)@torch.randn(8,4)"
    assert cli.main(["compile", "-c", code, "--explain-accuracy"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("accuracy default uses rules of these kinds: exact, reassociates, contracts\n")
    assert "reassociates: may change the last digits" in text
    assert "twist_softmax_weighted" in text
    assert cli.main(["compile", "-c", code, "--accuracy", "strict", "--explain-accuracy"]) == 0
    text = capsys.readouterr().out
    assert "uses rules of these kinds: exact\n" in text
    assert "last digits" not in text.split("Under every accuracy")[0]


def _two(op: str) -> tuple[Builder, Value, Value]:
    b = Builder()
    x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
    roots = b.apply("sqrt", x), b.apply("sqrt", y)
    a, c = {
        "exp(log(x)) = x": lambda: (b.apply("exp", b.apply("log", x)), x),
        "sqrt(x)*sqrt(y) = sqrt(x*y)": lambda: (b.apply("mul", *roots), b.apply("sqrt", b.apply("mul", x, y))),
        "max(x, min(x, y)) = x": lambda: (b.apply("maximum", x, b.apply("minimum", x, y)), x),
        "(x > 0 ? x : 0) = relu": lambda: (b.where(b.apply("gt", x, 0.0), x, 0.0), b.apply("maximum", x, 0.0)),
        "-(x - y) = y - x": lambda: (b.apply("neg", b.apply("sub", x, y)), b.apply("sub", y, x)),
        "x - x = 0": lambda: (b.apply("sub", x, x), b.full((8,), 0.0, "f32")),
        "not x < y = y <= x": lambda: (b.apply("not", b.apply("lt", x, y)), b.apply("le", y, x)),
    }[op]()  # fmt: skip
    return b, a, c


UNPROVABLE = (
    "exp(log(x)) = x", "sqrt(x)*sqrt(y) = sqrt(x*y)", "max(x, min(x, y)) = x", "(x > 0 ? x : 0) = relu", "-(x - y) = y - x", "x - x = 0",
    "not x < y = y <= x",
)  # fmt: skip


@pytest.mark.parametrize("identity", UNPROVABLE)
def test_what_floats_refute_stays_unproved(identity: str) -> None:
    b, left, right = _two(identity)
    s = saturated(b, left, right, accuracy="fast")
    assert s.roots[0] != s.roots[1]
