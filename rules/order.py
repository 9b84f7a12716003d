"""Canonical spellings of arithmetic: both orders of what commutes, units gone, signs outside.  All bit for bit.

Not here, since floats refute them: x + 0.0 = x (x may be -0.0), x * 0 = 0 and x - x = 0 (x may be infinite or NaN), x / x = 1,
-(a - b) = b - a (where a is b, the zeros have two signs).
"""

from __future__ import annotations

from emmy_eq.algebra import Val
from emmy_eq.rule import Equation, Phase, Rounding, Rule, rewrite, rule


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_add(a: Val, b: Val) -> Equation:
    """Addition rounds the same number either way."""
    return rewrite(a + b, b + a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_mul(a: Val, b: Val) -> Equation:
    """Multiplication rounds the same number either way."""
    return rewrite(a * b, b * a)


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
def multiply_by_minus_one(a: Val) -> Equation:
    """A product with -1 flips the sign."""
    return rewrite(a * -1.0, -a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def one_over(a: Val) -> Equation:
    """A reciprocal is defined as this quotient."""
    return rewrite(1.0 / a, a.reciprocal())


@rule(Rounding.EXACT, Phase.NORMALIZE)
def subtract_negation(a: Val, b: Val) -> Equation:
    """Subtracting a negation adds."""
    return rewrite(a - (-b), a + b)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def negate_dividend(a: Val, b: Val) -> Equation:
    """A sign leaves a quotient."""
    return rewrite((-a) / b, -(a / b))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def magnitude_of_negation(a: Val) -> Equation:
    """A magnitude has no sign."""
    return rewrite(abs(-a), abs(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def magnitude_twice(a: Val) -> Equation:
    """A magnitude is its own."""
    return rewrite(abs(abs(a)), abs(a))


def rules() -> tuple[Rule, ...]:
    return (
        commute_add, commute_mul, multiply_by_one, divide_by_one, add_negative_zero, subtract_zero, negate_twice, add_negation,
        negate_factor, multiply_by_minus_one, one_over, subtract_negation, negate_dividend, magnitude_of_negation,
        magnitude_twice,
    )  # fmt: skip
