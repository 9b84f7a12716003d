"""Where values live: fusion undoes a store, a cut adds one.  The plan chooses between them."""

from __future__ import annotations

from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Monoid, Phase, Rounding, Rule, rewrite, rule


@rule(Rounding.EXACT, Phase.FUSION)
def fuse(v: Val, m: Axes) -> Equation:
    """A value read back under the axes that it was stored over is that value: the reader computes it in place."""
    return rewrite(v.stored(m), v)


@rule(Rounding.EXACT, Phase.CUT)
def store_reduction(v: Val, m: Monoid, k: Axes) -> Equation:
    """A reduction is worth storing: a reader under a further axis would repeat it."""
    r = v.reduce(m, k)
    return rewrite(r, r.stored(r.free))


def rules() -> tuple[Rule, ...]:
    return (fuse, store_reduction)
