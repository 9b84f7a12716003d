"""Products and quotients.  Associativity moves only where a sum asks for it: free, it makes 3^k rows of a k-fold product."""

from __future__ import annotations

from typing import Any

from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Rounding, Rule, rewrite, rule


@rule(Rounding.REASSOCIATES)
def raise_constant_factor(a: Val, b: Val, c: Val, k: Axes) -> Equation:
    """In a product under a sum over k, a factor that does not vary along k moves to the top, where the sum can drop it."""
    p = (a * b) * c
    return rewrite(p, a * (b * c), when=(p.summed_over(k), a.free_of(k)))


@rule(Rounding.REASSOCIATES)
def divide_last(a: Val, b: Val, c: Val) -> Equation:
    """A quotient is multiplied before it is divided."""
    return rewrite((a / b) * c, (a * c) / b)


@rule(Rounding.REASSOCIATES)
def multiply_by_reciprocal(a: Val, b: Val) -> Equation:
    """Where the divisor has fewer axes, one reciprocal serves many quotients."""
    return rewrite(a / b, a * b.reciprocal(), when=(a.free - b.free).not_empty())


@rule(Rounding.CONTRACTS)
def divide_by_divisor(a: Val, b: Val) -> Equation:
    """A product with a reciprocal is a quotient, which rounds once less."""
    return rewrite(a * b.reciprocal(), a / b)


@rule(Rounding.REASSOCIATES)
def multiply_scales(a: Val, b: Val, c: Val) -> Equation:
    """Two factors that vary along fewer axes are one, which is computed fewer times; of two constants it is a constant."""
    return rewrite((a * b) * c, a * (b * c), when=_fewer(a, b, c))


@rule(Rounding.REASSOCIATES)
def divide_scales(a: Val, b: Val, c: Val) -> Equation:
    """A factor and a divisor that vary along fewer axes are one factor."""
    return rewrite((a * b) / c, a * (b / c), when=_fewer(a, b, c))


@rule(Rounding.REASSOCIATES)
def add_shifts(a: Val, b: Val, c: Val) -> Equation:
    """Two addends that vary along fewer axes are one."""
    return rewrite((a + b) + c, a + (b + c), when=_fewer(a, b, c))


def _fewer(a: Val, b: Val, c: Val) -> Any:
    """Guard: some axis of ``a`` is in neither of the others."""
    return (a.free - (b.free | c.free)).not_empty()


def rules() -> tuple[Rule, ...]:
    return (
        raise_constant_factor, divide_last, multiply_by_reciprocal, divide_by_divisor, multiply_scales, divide_scales, add_shifts,
    )  # fmt: skip
