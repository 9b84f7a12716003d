"""One-pass forms: every row of `emmy_eq.ops.twists` read as a rewrite."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq import ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Phase, Rounding, Rule, rewrite, rule


def _family(row: ops.Twist) -> Iterator[Rule]:
    @rule(Rounding.REASSOCIATES, Phase.TWIST, f"twist_{row.name}")
    def weighted(s: Val, v: Val, k: Axes) -> Equation:
        """A sum weighted against its own key takes one pass over k: the sum is rescaled whenever the key grows."""
        return rewrite((row.weight(s, s.reduce(row.key, k)) * v).sum(k), s.twist(row.name, v, k))

    @rule(Rounding.REASSOCIATES, Phase.TWIST, f"twist_{row.name}_of_one")
    def unweighted(s: Val, k: Axes) -> Equation:
        """The sum of the weights alone, likewise."""
        return rewrite(row.weight(s, s.reduce(row.key, k)).sum(k), s.twist(row.name, s.like(1.0), k))

    yield weighted
    yield unweighted


@rule(Rounding.REASSOCIATES, Phase.TWIST)
def shift_by_finite_maximum(s: Val, k: Axes) -> Equation:
    """A sum of exponentials that shifts by the maximum only where that is finite (logsumexp) shifts always, and is chosen per row:
    the exponentials of a row whose maximum is -inf or inf add up to 0 or inf, as that of the maximum does."""
    top = s.max(k)
    infinite = top.call("isinf")
    return rewrite((s - infinite.where(s.like(0.0), top)).exp().sum(k), infinite.where(top.exp(), (s - top).exp().sum(k)))


def rules() -> tuple[Rule, ...]:
    return (shift_by_finite_maximum, *(r for row in ops.twists().values() for r in _family(row)))
