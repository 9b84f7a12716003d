"""A rule of our own."""

from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Rounding, rewrite, rule


@rule(Rounding.REASSOCIATES)
def exp_of_sum(v: Val, k: Axes) -> Equation:
    """A product of exponentials is one exponential."""
    return rewrite(v.exp().prod(k), v.sum(k).exp())
