"""The printer and the verifier of Kernel IR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.errors import VerifyError
from emmy_eq.extract.targets import target
from emmy_eq.index import const, var
from tests.kernel_samples import row_sum, samples, vector_add, wgmma_matmul

TID = var("tid")
ONE = ir.Lit("f32", 0x3F800000)


def kernel(*body: ir.Stmt, threads: int = 64, shared: tuple[ir.Shared, ...] = ()) -> ir.Kernel:
    params = (ir.Param("x", "f32", 64, "input"), ir.Param("o", "f32", 64, "output"))
    return ir.Kernel("k", params, (1, 1, 1), threads, shared, body)


LOAD = ir.Load(("a",), "f32", "global", "x", TID)
TILE = ir.Shared("s", "f32", 64)


@pytest.mark.parametrize("name", samples())
def test_samples_verify_and_print_one_line_a_statement(name: str) -> None:
    k = samples()[name].kernel
    ir.verify(k, target("sm_90a"))
    heads = 1 + len(k.maps) + len(k.shared)
    branches = sum(len(s.bodies) - 1 for s in ir.walk.statements(k.body) if isinstance(s, ir.Role))
    assert ir.show(k).count("\n") == heads + branches + len(list(ir.walk.statements(k.body)))


def test_text() -> None:
    assert ir.show(row_sum(2, 128).kernel).splitlines()[:6] == [
        "kernel row_sum(input x: f32[256], output o: f32[2]) grid 2x1x1 threads 128:",
        "  shared part: f32[4] align 16",
        "  var total: f32 = 0.0",
        "  for k0 in 0 .. 128 step 128:",
        "    x0: f32 = load.global x[bx*128 + (k0 + tid)] if k0 + tid < 128",
        "    total = add total, x0",
    ]


WRONG: list[tuple[str, ir.Kernel]] = [
    ("not a multiple of 32", kernel(threads=48)),
    ("a is not defined here", kernel(ir.Store(("a",), "f32", "global", "o", TID))),
    ("assigned twice", kernel(LOAD, LOAD)),
    ("not a declared mutable register", kernel(LOAD, ir.Set("a", "f32", "add", ("a", ONE)))),
    ("mixed dtypes", kernel(LOAD, ir.Let("b", "f32", "add", ("a", ir.Lit("f64", 0))))),
    ("gives bool, not f32", kernel(LOAD, ir.Let("b", "f32", "lt", ("a", ONE)))),
    ("takes 2 arguments", kernel(LOAD, ir.Let("b", "f32", "add", ("a",)))),
    ("no operation frobnicate", kernel(LOAD, ir.Let("b", "f32", "frobnicate", ("a",)))),
    ("not done in f16", kernel(ir.Let("b", "f16", "add", (ir.Lit("f16", 0), ir.Lit("f16", 0))))),
    ("o is an input", replace(kernel(LOAD, ir.Store(("a",), "f32", "global", "o", TID)), params=(
        ir.Param("x", "f32", 64, "input"), ir.Param("o", "f32", 64, "input")))),
    ("vector of 3", kernel(ir.Load(("a", "b", "c"), "f32", "global", "x", TID * 4))),
    ("not a multiple of 4", kernel(ir.Load(("a", "b", "c", "d"), "f32", "global", "x", TID * 4 + 2))),
    ("no shared array s", kernel(LOAD, ir.Store(("a",), "f32", "shared", "s", TID))),
    ("of shared memory", kernel(shared=(ir.Shared("s", "f32", 60_000),))),
    ("predicate a is no bool", kernel(LOAD, ir.If((ir.Test("a"),), ()))),
    ("a of f32 in an index", kernel(LOAD, ir.Load(("b",), "f32", "global", "x", var("a")))),
    ("barrier of the whole block", kernel(ir.If((ir.Cmp(TID, "<", const(32)),), (ir.Barrier(),)))),
    ("barrier of the whole block", kernel(ir.For("i", const(0), TID, 1, (ir.Barrier(),)))),
    ("not uniform", kernel(ir.If((ir.Cmp(TID, "<", const(32)),), (ir.Return(),)))),
    ("initial value", kernel(ir.Declare("a", "f32", ir.Lit("f64", 0)))),
    ("12 bytes", kernel(ir.CpAsync("s", TID * 4, "x", TID * 4, "f32", 3), shared=(TILE,))),
    ("41 registers", kernel(ir.SetMaxRegs(41, increase=False))),
    ("overlap", kernel(ir.Role(((0, 1), (0, 1)), ((), ())))),
    ("no parameter o of i32", kernel(LOAD, ir.Atomic("p", "global", "o", TID, "a"))),
]  # fmt: skip


@pytest.mark.parametrize(("why", "wrong"), WRONG)
def test_verifier_refuses(why: str, wrong: ir.Kernel) -> None:
    with pytest.raises(VerifyError, match=why):
        ir.verify(wrong)


def test_a_register_ends_with_its_scope() -> None:
    inner = ir.For("i", const(0), const(2), 1, (LOAD,))
    ir.verify(kernel(inner, inner))
    with pytest.raises(VerifyError, match="a is not defined here"):
        ir.verify(kernel(inner, ir.Store(("a",), "f32", "global", "o", TID)))


def test_a_mutable_register_that_becomes_divergent_in_a_loop_makes_its_branch_divergent() -> None:
    grow = ir.Set("n", "i32", "add", ("n", "t"))
    loop = ir.For("i", const(0), const(2), 1, (ir.If((ir.Cmp(var("n"), "<", const(5)),), (ir.Barrier(),)), grow))
    k = kernel(ir.Let("t", "i32", "index", (), TID), ir.Declare("n", "i32", ir.Lit("i32", 0)), loop)
    with pytest.raises(VerifyError, match="divergent"):
        ir.verify(k)


def test_a_target_without_wgmma_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"needs tma, wgmma, which A100 \(sm_80\) lacks"):
        ir.verify(wgmma_matmul().kernel, target("sm_80"))
    ir.verify(vector_add().kernel, target("sm_80"))
