"""Reductions over axis sets.  Over a set, nested reductions need no swapping: they merge, and split where a factor lets them."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Bool, Equation, Monoid, Phase, Rounding, Rule, equal, rewrite, rule


@rule(Rounding.EXACT, Phase.NORMALIZE)
def reduce_over_nothing(v: Val, m: Monoid, k: Axes) -> Equation:
    """A reduction over no axes is its operand."""
    return rewrite(v.reduce(m, k), v, when=k.is_empty())


def _merge() -> Iterator[Rule]:
    for monoid in ("sum", "prod", "max", "min"):

        @rule(Rounding.REASSOCIATES, name=f"merge_{monoid}")
        def merge(v: Val, k: Axes, j: Axes, monoid: str = monoid) -> Equation:
            """Nested reductions are one over both axis sets."""
            return rewrite(v.reduce(monoid, k).reduce(monoid, j), v.reduce(monoid, k | j), when=k.disjoint(j))

        yield merge


def _merge_bools() -> Iterator[Rule]:
    for monoid in ("any", "all"):

        @rule(Rounding.EXACT, name=f"merge_{monoid}")
        def merge(v: Bool, k: Axes, j: Axes, monoid: str = monoid) -> Equation:
            """Nested tests are one over both axis sets."""
            return rewrite(v.reduce(monoid, k).reduce(monoid, j), v.reduce(monoid, k | j), when=k.disjoint(j))

        yield merge


def _repeat() -> Iterator[Rule]:
    for monoid in ("max", "min"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"{monoid}_of_repeated")
        def repeated(v: Val, k: Axes, monoid: str = monoid) -> Equation:
            """Equal values along an axis have one greatest and one least."""
            other = k - v.free
            return rewrite(v.reduce(monoid, k), v.reduce(monoid, k & v.free), when=(other.not_empty(), other.inhabited()))

        yield repeated


def _repeat_bools() -> Iterator[Rule]:
    for monoid in ("any", "all"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"{monoid}_of_repeated")
        def repeated(v: Bool, k: Axes, monoid: str = monoid) -> Equation:
            """A test of equal values is one test."""
            other = k - v.free
            return rewrite(v.reduce(monoid, k), v.reduce(monoid, k & v.free), when=(other.not_empty(), other.inhabited()))

        yield repeated


@rule(Rounding.EXACT)
def any_of_negated(c: Bool, k: Axes) -> Equation:
    """Some condition fails where not all hold."""
    return rewrite(c.call("not").reduce("any", k), c.reduce("all", k).call("not"))


@rule(Rounding.EXACT)
def all_of_negated(c: Bool, k: Axes) -> Equation:
    """All conditions fail where none holds."""
    return rewrite(c.call("not").reduce("all", k), c.reduce("any", k).call("not"))


@rule(Rounding.REASSOCIATES)
def factor_out_of_amax(a: Val, b: Val, k: Axes) -> Equation:
    """A factor that does not vary along k leaves the greatest magnitude: that of a normalized row is found beside the norm's own sum."""
    return rewrite(abs(a * b).max(k), abs(a).max(k) * abs(b), when=b.free_of(k))


@rule(Rounding.REASSOCIATES)
def divide_after_amax(a: Val, b: Val, k: Axes) -> Equation:
    """A divisor leaves the greatest magnitude as a factor does."""
    return rewrite(abs(a / b).max(k), abs(a).max(k) / abs(b), when=b.free_of(k))


@rule(Rounding.REASSOCIATES)
def sum_of_repeated(v: Val, k: Axes) -> Equation:
    """A sum over axes along which nothing varies counts them."""
    other = k - v.free
    return rewrite(v.sum(k), v.sum(k & v.free) * v.count(other), when=other.not_empty())


@rule(Rounding.REASSOCIATES)
def factor_out_of_sum(a: Val, b: Val, k: Axes) -> Equation:
    """A factor leaves the sum over the axes that it does not vary along."""
    inner = k - a.free
    return rewrite((a * b).sum(k), (a * b.sum(inner)).sum(k & a.free), when=inner.not_empty())


@rule(Rounding.REASSOCIATES)
def regroup_sum(a: Val, b: Val, c: Val, k: Axes) -> Equation:
    """Of three factors one leaves, the others are summed first: (AB)C = A(BC)."""
    inner = k - a.free
    return rewrite(((a * b) * c).sum(k), (a * (b * c).sum(inner)).sum(k & a.free), when=inner.not_empty())


@rule(Rounding.REASSOCIATES)
def factor_into_sum(a: Val, b: Val, k: Axes, j: Axes) -> Equation:
    """A factor joins the inner of two sums, which become one: the way to a better grouping."""
    return rewrite((a * b.sum(j)).sum(k), (a * b).sum(k | j), when=(a.free_of(j), k.disjoint(j)))


@rule(Rounding.REASSOCIATES)
def divide_after_sum(a: Val, b: Val, k: Axes) -> Equation:
    """A divisor that does not vary along k leaves a sum over k."""
    return rewrite((a / b).sum(k), a.sum(k) / b, when=b.free_of(k))


@rule(Rounding.REASSOCIATES)
def sign_of_sum(a: Val, k: Axes) -> Equation:
    """A sign stands inside or outside of a sum."""
    return equal((-a).sum(k), -(a.sum(k)))


@rule(Rounding.REASSOCIATES)
def add_sums(x: Val, a: Val, b: Val, k: Axes) -> Equation:
    """Two products with one operand are one: xA + xB = x(A + B)."""
    return rewrite((x * a).sum(k) + (x * b).sum(k), (x * (a + b)).sum(k))


@rule(Rounding.REASSOCIATES)
def split_low_rank(x: Val, a: Val, b: Val, k: Axes, j: Axes) -> Equation:
    """A product with a matrix and a low-rank update takes them one after the other: x(A + BC) = xA + (xB)C."""
    return rewrite((x * (a + b.sum(j))).sum(k), (x * a).sum(k) + (x * b.sum(j)).sum(k), when=(x.free_of(j), j.smaller_than(k)))


def rules() -> tuple[Rule, ...]:
    return (
        reduce_over_nothing, *_merge(), *_merge_bools(), *_repeat(), *_repeat_bools(), any_of_negated, all_of_negated, factor_out_of_amax,
        divide_after_amax, sum_of_repeated, factor_out_of_sum, regroup_sum, factor_into_sum, divide_after_sum, sign_of_sum, add_sums,
        split_low_rank,
    )  # fmt: skip
