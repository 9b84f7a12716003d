"""Products and quotients.  Associativity moves only where a sum asks for it: free, it makes 3^k rows of a k-fold product."""

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
def reciprocal_of_sqrt(a: Val) -> Equation:
    """The hardware's reciprocal square root rounds once."""
    return rewrite(a.sqrt().reciprocal(), a.rsqrt())


@rule(Rounding.CONTRACTS)
def one_over_sqrt(a: Val) -> Equation:
    """The same, spelled as a quotient."""
    return rewrite(1.0 / a.sqrt(), a.rsqrt())


def rules() -> tuple[Rule, ...]:
    return (raise_constant_factor, divide_last, multiply_by_reciprocal, reciprocal_of_sqrt, one_over_sqrt)
