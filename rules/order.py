"""Canonical spellings: both orders of what commutes, one of each comparison, units gone.  All bit for bit.

Not here, since floats refute them: max(a, b) = max(b, a) (of 0.0 and -0.0 NumPy gives the first), x + 0.0 = x (x may be -0.0),
x * 0 = 0 and x - x = 0 (x may be infinite or NaN), x / x = 1.
"""

from __future__ import annotations

from emmy_eq.algebra import Val
from emmy_eq.rule import Bool, Equation, Phase, Rounding, Rule, rewrite, rule


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_add(a: Val, b: Val) -> Equation:
    """Addition rounds the same number either way."""
    return rewrite(a + b, b + a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_mul(a: Val, b: Val) -> Equation:
    """Multiplication rounds the same number either way."""
    return rewrite(a * b, b * a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_eq(a: Val, b: Val) -> Equation:
    """Equality is symmetric."""
    return rewrite(a.eq(b), b.eq(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def maximum_of_same(a: Val) -> Equation:
    """A value is its own maximum."""
    return rewrite(a.maximum(a), a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def minimum_of_same(a: Val) -> Equation:
    """A value is its own minimum."""
    return rewrite(a.minimum(a), a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def greater_as_less(a: Val, b: Val) -> Equation:
    """One spelling for a strict comparison."""
    return rewrite(a.gt(b), b.lt(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def greater_equal_as_less_equal(a: Val, b: Val) -> Equation:
    """One spelling for a comparison."""
    return rewrite(a.ge(b), b.le(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def multiply_by_one(a: Val) -> Equation:
    """One is the unit of multiplication."""
    return rewrite(a * 1.0, a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def divide_by_one(a: Val) -> Equation:
    """One is the right unit of division."""
    return rewrite(a / 1.0, a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def add_negative_zero(a: Val) -> Equation:
    """-0.0 is the unit of addition; +0.0 is not, since -0.0 + 0.0 is 0.0."""
    return rewrite(a + -0.0, a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def subtract_zero(a: Val) -> Equation:
    """+0.0 is the right unit of subtraction."""
    return rewrite(a - 0.0, a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def negate_twice(a: Val) -> Equation:
    """Negation flips one bit."""
    return rewrite(a.call("neg").call("neg"), a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def add_negation(a: Val, b: Val) -> Equation:
    """Subtraction is defined as adding the negation."""
    return rewrite(a + (-b), a - b)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def negate_factor(a: Val, b: Val) -> Equation:
    """A sign leaves a product."""
    return rewrite((-a) * b, -(a * b))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_same(c: Bool, a: Val) -> Equation:
    """A choice between equal values is no choice."""
    return rewrite(c.where(a, a), a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_not(c: Bool, a: Val, b: Val) -> Equation:
    """A negated condition swaps the branches."""
    return rewrite(c.call("not").where(a, b), c.where(b, a))


def rules() -> tuple[Rule, ...]:
    return (
        commute_add, commute_mul, commute_eq, maximum_of_same, minimum_of_same, greater_as_less,
        greater_equal_as_less_equal, multiply_by_one, divide_by_one, add_negative_zero, subtract_zero, negate_twice, add_negation,
        negate_factor, where_same, where_not,
    )  # fmt: skip
