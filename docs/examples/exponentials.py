"""A rule of our own."""

from emmy_eq.algebra import Val
from emmy_eq.rule import Equation, Rounding, rewrite, rule


@rule(Rounding.REASSOCIATES)
def exp_of_sum(a: Val, b: Val) -> Equation:
    """A product of exponentials is one exponential."""
    return rewrite(a.exp() * b.exp(), (a + b).exp())
