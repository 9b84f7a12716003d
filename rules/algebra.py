"""Sums, products and quotients over axis sets."""

from __future__ import annotations

from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Monoid, Phase, Rounding, Rule, equal, rewrite, rule


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_add(a: Val, b: Val) -> Equation:
    """Addition commutes, bit for bit."""
    return rewrite(a + b, b + a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_mul(a: Val, b: Val) -> Equation:
    """Multiplication commutes, bit for bit."""
    return rewrite(a * b, b * a)


@rule(Rounding.REASSOCIATES)
def factor_out_of_sum(a: Val, b: Val, k: Axes) -> Equation:
    """A factor that does not vary along k leaves a sum over k."""
    return rewrite((a * b).sum(k), a * b.sum(k), when=a.free_of(k))


@rule(Rounding.REASSOCIATES)
def divide_after_sum(a: Val, b: Val, k: Axes) -> Equation:
    """A divisor that does not vary along k leaves a sum over k."""
    return rewrite((a / b).sum(k), a.sum(k) / b, when=b.free_of(k))


@rule(Rounding.REASSOCIATES)
def divide_last(a: Val, b: Val, c: Val) -> Equation:
    """A quotient times c is divided last."""
    return rewrite((a / b) * c, (a * c) / b)


def rules() -> tuple[Rule, ...]:
    return (commute_add, commute_mul, factor_out_of_sum, divide_after_sum, divide_last)
