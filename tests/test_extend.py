"""One of each from outside the package: a rule, an operation, a target, a schedule family, each a row added to a registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import emmy_eq
from emmy_eq import loop_ir, lower, ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.codegen import families, nvrtc
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.schedule import Schedule, Split
from emmy_eq.extract import targets
from emmy_eq.extract.targets import Target
from emmy_eq.rule import Equation, Rounding, rewrite, rule
from emmy_eq.verify.check import check_rule


@rule(Rounding.REASSOCIATES)
def exp_of_sum(v: Val, k: Axes) -> Equation:
    """A product of exponentials is one exponential; not exact: exp(v) may overflow where the sum does not."""
    return rewrite(v.exp().prod(k), v.sum(k).exp())


@rule(Rounding.EXACT)
def wrong(a: Val, b: Val) -> Equation:
    """Refuted: subtraction does not commute."""
    return rewrite(a - b, b - a)


def test_rule() -> None:
    x = torch.randn(4, 8)

    def program(a: torch.Tensor) -> torch.Tensor:
        return a.exp().prod(1)

    def operations(**options: Any) -> dict[str, int]:
        (kernel,) = emmy_eq.compile(program, (x,), **options).loop_ir.kernels
        return loop_ir.ops(kernel)

    assert "prod" in operations()
    assert "prod" not in operations(rules=[exp_of_sum])
    assert check_rule(exp_of_sum).holds
    assert not check_rule(wrong).holds
    with pytest.raises(emmy_eq.InvalidInput, match=r"rule wrong .* is not true"):
        emmy_eq.compile(program, (x,), rules=[wrong])


@torch.library.custom_op("emmy_eq_test::softsign", mutates_args=())
def softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


@softsign.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def lower_softsign(b: lower.Builder, x: lower.Value) -> lower.Value:
    """The row of the lowering table: one scalar operation on every element."""
    return b.apply("softsign", x)


@pytest.fixture
def softsign_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ops.Op("softsign", 1, lambda x: x / (1 + abs(x)), {"f32": "({0} / (1.0f + fabsf({0})))"}, unit="sfu", cost=5, flops=3)
    monkeypatch.setitem(ops.ops(), "softsign", row)
    monkeypatch.setitem(lower.table(), "emmy_eq_test.softsign.default", lower_softsign)


@pytest.mark.usefixtures("softsign_rows")
def test_operation() -> None:
    x = torch.randn(4, 8)
    program = emmy_eq.compile(lambda t: softsign(t).sum(1), (x,))
    (kernel,) = program.loop_ir.kernels
    assert loop_ir.ops(kernel)["softsign"] == 1
    # float32 rounding of eight terms of size 1
    torch.testing.assert_close(program(x), (x / (1 + x.abs())).sum(1), rtol=1e-6, atol=1e-6)
    assert "fabsf" in program.cuda[0]
    if nvrtc.available():
        assert nvrtc.compile_cubin(program.cuda[0], program.target.arch)


def test_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower memory makes the plan read less, where arithmetic buys it."""
    monkeypatch.setitem(targets.targets(), "Trickle", replace(targets.target("A100"), name="Trickle", dram_bandwidth=1e9))
    x = torch.empty(1 << 25)  # more than an L2 cache holds
    program = emmy_eq.compile(torch.exp, (x,), target="Trickle")
    assert program.target.arch == "sm_80"
    assert program.plan.seconds > 100 * emmy_eq.compile(torch.exp, (x,), target="A100").plan.seconds
    assert "Trickle" in program.explain()


def one_warp(facts: Facts, target: Target) -> Iterator[Schedule]:
    """Each block is one warp that walks the last axis."""
    yield Schedule(32, ((facts.axes.outer[-1].name, Split(threads=32)),))


def test_schedule_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.families(), "one_warp", families.Family("one_warp", lambda facts: not facts.folds, one_warp))
    x = torch.randn(3, 100)
    default = emmy_eq.compile(torch.exp, (x,))
    (kernel,) = default.loop_ir.kernels
    (row,) = [r for r in families.schedules(kernel, default.target) if r.threads == 32]
    program = emmy_eq.compile(torch.exp, (x,), schedule=str(row))
    assert program.kernel_ir[0].threads == 32
    # float32 exp: two units in the last place
    np.testing.assert_allclose(program(x), x.double().exp(), rtol=3e-7)
