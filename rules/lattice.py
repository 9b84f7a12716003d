"""Greatest, least, chosen and compared: what holds of an order bit for bit, NaN and both zeros included.

Not here, since NaN refutes them: max(a, min(a, b)) = a, (a > 0 ? a : 0) = max(a, 0), not (a < b) = (b <= a), a = a.
"""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Bool, Equation, Phase, Rounding, Rule, rewrite, rule


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_maximum(a: Val, b: Val) -> Equation:
    """A maximum has no order: a NaN wins from either side, and 0.0 is above -0.0."""
    return rewrite(a.maximum(b), b.maximum(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_minimum(a: Val, b: Val) -> Equation:
    """A minimum has no order."""
    return rewrite(a.minimum(b), b.minimum(a))


def _bounds() -> Iterator[Rule]:
    for op in ("maximum", "minimum"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"{op}_of_same")
        def same(a: Val, op: str = op) -> Equation:
            """A value is its own greatest and least."""
            return rewrite(a.call(op, a), a)

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"{op}_again")
        def again(a: Val, b: Val, op: str = op) -> Equation:
            """A bound holds once it is met: relu(relu(a)) is relu(a)."""
            return rewrite(a.call(op, b).call(op, b), a.call(op, b))

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"{op}_of_bounds")
        def bounds(a: Val, b: Val, c: Val, op: str = op) -> Equation:
            """Two bounds on one side that vary along fewer axes are one, which is computed fewer times."""
            return rewrite(a.call(op, b).call(op, c), a.call(op, b.call(op, c)), when=(a.free - (b.free | c.free)).not_empty())

        yield from (same, again, bounds)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def maximum_of_negation(a: Val) -> Equation:
    """The greater of a value and its negation is its magnitude."""
    return rewrite(a.maximum(-a), abs(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def choose_nonnegative(a: Val) -> Equation:
    """A choice that replaces what is not above 0 by 0 is a maximum; the one that keeps what is above 0 loses NaN, and is none."""
    return rewrite(a.le(0.0).where(a.like(0.0), a), a.maximum(0.0))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_same(c: Bool, a: Val) -> Equation:
    """A choice between equal values is no choice."""
    return rewrite(c.where(a, a), a)


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_not(c: Bool, a: Val, b: Val) -> Equation:
    """A negated condition swaps the branches."""
    return rewrite(c.call("not").where(a, b), c.where(b, a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_known_true(c: Bool, a: Val, b: Val, d: Val) -> Equation:
    """Where a condition holds, it need not be asked again."""
    return rewrite(c.where(c.where(a, b), d), c.where(a, d))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_known_false(c: Bool, a: Val, b: Val, d: Val) -> Equation:
    """Where a condition fails, it need not be asked again: a row that is masked twice."""
    return rewrite(c.where(a, c.where(b, d)), c.where(a, d))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_both(c: Bool, d: Bool, a: Val, b: Val) -> Equation:
    """Two masks with one fill are one mask: causal and padding."""
    return rewrite(c.where(d.where(a, b), b), c.call("and", d).where(a, b))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def where_either(c: Bool, d: Bool, a: Val, b: Val) -> Equation:
    """Two masks with one fill, spelled as what is left out."""
    return rewrite(c.where(a, d.where(a, b)), c.call("or", d).where(a, b))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def commute_eq(a: Val, b: Val) -> Equation:
    """Equality is symmetric."""
    return rewrite(a.eq(b), b.eq(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def greater_as_less(a: Val, b: Val) -> Equation:
    """One spelling for a strict comparison."""
    return rewrite(a.gt(b), b.lt(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def greater_equal_as_less_equal(a: Val, b: Val) -> Equation:
    """One spelling for a comparison."""
    return rewrite(a.ge(b), b.le(a))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def not_equal(a: Val, b: Val) -> Equation:
    """What is not equal differs, NaN included; of the comparisons by order the same is false."""
    return rewrite(a.eq(b).call("not"), a.ne(b))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def not_different(a: Val, b: Val) -> Equation:
    """What does not differ is equal."""
    return rewrite(a.ne(b).call("not"), a.eq(b))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def differs_from_itself(a: Val) -> Equation:
    """Only NaN differs from itself."""
    return rewrite(a.ne(a), a.call("isnan"))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def not_twice(c: Bool) -> Equation:
    """Two negations are none."""
    return rewrite(c.call("not").call("not"), c)


def _connectives() -> Iterator[Rule]:
    for op in ("and", "or"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"commute_{op}")
        def commute(c: Bool, d: Bool, op: str = op) -> Equation:
            """Bits are combined either way."""
            return rewrite(c.call(op, d), d.call(op, c))

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"{op}_of_same")
        def same(c: Bool, op: str = op) -> Equation:
            """A condition asked twice is asked once."""
            return rewrite(c.call(op, c), c)

        yield from (commute, same)


def _extremes() -> Iterator[Rule]:
    for monoid, op in (("max", "maximum"), ("min", "minimum")):

        @rule(Rounding.REASSOCIATES, name=f"bound_after_{monoid}")
        def bound(a: Val, c: Val, k: Axes, monoid: str = monoid, op: str = op) -> Equation:
            """A bound that does not vary along k is met after the reduction as well."""
            return rewrite(a.call(op, c).reduce(monoid, k), a.reduce(monoid, k).call(op, c), when=c.free_of(k))

        yield bound


def rules() -> tuple[Rule, ...]:
    return (
        commute_maximum, commute_minimum, *_bounds(), maximum_of_negation, choose_nonnegative, where_same, where_not, where_known_true,
        where_known_false, where_both, where_either, commute_eq, greater_as_less, greater_equal_as_less_equal, not_equal, not_different,
        differs_from_itself, not_twice, *_connectives(), *_extremes(),
    )  # fmt: skip
