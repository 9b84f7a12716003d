"""Products and quotients.  Associativity moves only where a sum asks for it: free, it makes 3^k rows of a k-fold product,
and beside x*1 = x it never ends: x = (x*1)*1 = x*(1*1) = (x*(1*1))*1 = ...
"""

from __future__ import annotations

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


def rules() -> tuple[Rule, ...]:
    return (raise_constant_factor, divide_last, multiply_by_reciprocal, divide_by_divisor)
