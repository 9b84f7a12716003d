"""One-pass forms: every row of `emmy_eq.ops.twists` read as a rewrite, and the spellings that lead to them."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq import ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Phase, Rounding, Rule, rewrite, rule


def _family(row: ops.Twist) -> Iterator[Rule]:
    @rule(Rounding.REASSOCIATES, Phase.TWIST, f"twist_{row.name}")
    def unweighted(s: Val, k: Axes) -> Equation:
        """A sum of weights against their own key takes one pass over k: the sum follows the key as that grows."""
        s = abs(s) if row.magnitudes else s
        centre = row.centre(s.reduce(row.key, k), s.count(k))
        return rewrite(row.weight(s, centre).sum(k), s.twist(row.name, s.like(1.0), k))

    @rule(Rounding.REASSOCIATES, Phase.TWIST, f"twist_{row.name}_weighted")
    def weighted(s: Val, v: Val, k: Axes) -> Equation:
        """Values weighted so are summed in the same pass."""
        s = abs(s) if row.magnitudes else s
        centre = row.centre(s.reduce(row.key, k), s.count(k))
        return rewrite((row.weight(s, centre) * v).sum(k), s.twist(row.name, v, k))

    yield unweighted
    if row.adjust is None:
        yield weighted


@rule(Rounding.REASSOCIATES, Phase.TWIST)
def shift_by_finite_maximum(s: Val, k: Axes) -> Equation:
    """A sum of exponentials that shifts by the maximum only where that is finite (logsumexp) shifts always, and is chosen per row:
    the exponentials of a row whose maximum is -inf or inf add up to 0 or inf, as that of the maximum does."""
    top = s.max(k)
    infinite = top.call("isinf")
    return rewrite((s - infinite.where(s.like(0.0), top)).exp().sum(k), infinite.where(top.exp(), (s - top).exp().sum(k)))


@rule(Rounding.EXACT, Phase.TWIST)
def square_of_scaled(s: Val, k: Axes) -> Equation:
    """The square of a value scaled by the greatest magnitude is that of its magnitude, which is its own key."""
    top = abs(s).max(k)
    return rewrite((s / top) * (s / top), (abs(s) / top) * (abs(s) / top))


def rules() -> tuple[Rule, ...]:
    return (shift_by_finite_maximum, square_of_scaled, *(r for row in ops.twists().values() for r in _family(row)))
