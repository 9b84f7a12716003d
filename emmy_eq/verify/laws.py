"""The laws of folds, as rules of their own: what lets one pass over k run in blocks of k, on several threads, warps or blocks.

Of a monoid the law is a rule of the library: nested reductions are one over both axis sets (``merge_sum``, ...).  A fold that keeps the
best element and its position joins two of them, and that is associative.  The rule of a twist says that a sum of weights is the fold;
that the fold may be split, its parts rescaled and added, is the row's law (`emmy_eq.ops.Twist`).  Each law goes through the layers that
work on draws, those of a twist with the operands that it holds for: a block without any key to rescale by is dropped by the kernels, so
that all here are finite, and not 0 where they divide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from emmy_eq import ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Equation, Int, Rounding, Rule, rewrite, rule
from emmy_eq.verify import floats
from emmy_eq.verify.check import FLOATS, Verdict, check_on_draws
from emmy_eq.verify.draws import Values
from emmy_eq.verify.recorded import calls, record

_FLOATING = {FLOATS: floats.refutes}  # what weighs nothing is infinite, which no field knows
TWIST_LAW = "L2+ law"
HOLDS_FOR: Values = "finite and never 0"
DRAWS = 20


@cache
def laws(fold: str) -> tuple[Rule, ...]:
    """The laws of that row of `emmy_eq.ops.carriers`."""
    return laws_of_row(ops.carriers()[fold])


def laws_of_row(row: ops.Twist | ops.Best) -> tuple[Rule, ...]:
    if isinstance(row, ops.Best):
        return _best(row)
    if row.affine:
        return (_composed(row),)
    return (_adjusted(row),) if row.adjust is not None else (_rescaled(row), _nothing(row))


def mutants(row: ops.Twist | ops.Best) -> Mapping[str, ops.Twist | ops.Best]:
    """``row`` wrong in one place, by what is wrong; a law must refute each."""
    if isinstance(row, ops.Best):
        return {f"better where {other}": replace(row, better=other) for other in ("ne", "le" if row.better == "lt" else "ge")}
    if row.affine:
        return {f"elements joined by {key}": replace(row, key=key) for key in ("sum", "max")}
    old, adjust = row.rescale, row.adjust
    if adjust is None:
        return {
            "no rescale": replace(row, rescale=lambda m, n: m.like(1.0)),
            "the operands of the rescale swapped": replace(row, rescale=lambda m, n: old(n, m)),
            "the rescale twice": replace(row, rescale=lambda m, n: old(m, n) * old(m, n)),
            "another key of no elements": replace(row, magnitudes=not row.magnitudes),
            "weights about no key": replace(row, weight=lambda s, m: row.weight(s, m.like(1.0))),
        }
    return {
        "no adjustment": replace(row, adjust=lambda total, m, n, count: total),
        "an adjustment without the count": replace(row, adjust=lambda total, m, n, count: adjust(total, m, n, count.like(1.0))),
        "the adjustment about no centre": replace(row, adjust=lambda total, m, n, count: adjust(total, m, n.like(0.0), count)),
        "the adjustment subtracted": replace(row, adjust=lambda total, m, n, count: total - (adjust(total, m, n, count) - total)),
        "the key for the centre": replace(row, centre=lambda key, count: key),
    }


def laws_of(tested: Rule) -> Iterator[Rule]:
    """The laws of the twists that a rule's sides name."""
    for name in sorted({str(c.args[1]) for c in calls(record(tested), "_twist", "_running")}):
        yield from laws(name)


def lawful(tested: Rule, so_far: Verdict) -> Verdict:
    """``so_far``, unless a law of the rule's twists is refuted."""
    chosen = tuple(laws_of(tested))
    for law in chosen:
        if not (found := verdict(law)).holds:
            return replace(found, rule=tested.name, draws=so_far.draws, layer=f"{TWIST_LAW} {law.name}, {found.layer}")
    return replace(so_far, layers={**so_far.layers, TWIST_LAW: f"{DRAWS} draws"}) if chosen else so_far


@cache
def verdict(law: Rule) -> Verdict:
    values: Values = "any" if law.rounding is Rounding.EXACT else HOLDS_FOR
    return check_on_draws(law, DRAWS, values=values, using=None if law.args[1:] else _FLOATING)


def _best(row: ops.Best) -> tuple[Rule, ...]:
    def joined(x: tuple[Val, Val], y: tuple[Val, Val]) -> tuple[Val, Val]:
        takes = row.takes(*x, *y)
        return takes.where(x[0], y[0]), takes.where(x[1], y[1])

    def both(a: Val, b: Val, c: Val, i: Val, j: Val, k: Val) -> tuple[tuple[Val, Val], tuple[Val, Val]]:
        first, second, third = (a, i), (b, j), (c, k)
        return joined(joined(first, second), third), joined(first, joined(second, third))

    @rule(Rounding.EXACT, name=f"best_of_blocks_of_{row.name}")
    def best(a: Val, b: Val, c: Val, i: Int, j: Int, k: Int) -> Equation:
        """The best of two blocks is the best of their elements."""
        left, right = both(a, b, c, i, j, k)
        return rewrite(left[0], right[0])

    @rule(Rounding.EXACT, name=f"position_in_blocks_of_{row.name}")
    def position(a: Val, b: Val, c: Val, i: Int, j: Int, k: Int) -> Equation:
        """And stands where that stands."""
        left, right = both(a, b, c, i, j, k)
        return rewrite(left[1], right[1])

    @rule(Rounding.EXACT, name=f"either_side_of_{row.name}")
    def either(a: Val, b: Val, i: Int, j: Int) -> Equation:
        """Two elements have one best, whichever comes first."""
        return rewrite(joined((a, i), (b, j))[1], joined((b, j), (a, i))[1])

    return best, position, either


def _rescaled(row: ops.Twist) -> Rule:
    @rule(Rounding.REASSOCIATES, name=f"blocks_of_{row.name}")
    def blocks(s: Val, t: Val, v: Val, w: Val, k: Axes, j: Axes) -> Equation:
        """Two blocks, each weighted by its own key, rescale to their common key and add up."""
        s, t = (abs(s), abs(t)) if row.magnitudes else (s, t)
        left, right = s.reduce(row.key, k), t.reduce(row.key, j)
        top = left.call(ops.monoids()[row.key].combine, right)
        whole = (row.weight(s, top) * v).sum(k) + (row.weight(t, top) * w).sum(j)
        parts = (row.weight(s, left) * v).sum(k) * row.rescale(left, top) + (row.weight(t, right) * w).sum(j) * row.rescale(right, top)
        return rewrite(whole, parts, when=(s.free_of(j), t.free_of(k)))

    return blocks


def _composed(row: ops.Twist) -> Rule:
    @rule(Rounding.REASSOCIATES, name=f"blocks_of_{row.name}")
    def blocks(total: Val, s: Val, v: Val, t: Val, w: Val) -> Equation:
        """Elements one after the other do what they do joined first."""
        after, joint = row.extended(s, total, s, v), row.extended(s, v, t, w)
        return rewrite(row.extended(s, after, t, w), row.extended(s, total, row.joined(s, t), joint))

    return blocks


def _nothing(row: ops.Twist) -> Rule:
    @rule(Rounding.REASSOCIATES, name=f"nothing_in_{row.name}")
    def nothing(m: Val) -> Equation:
        """What does not count weighs nothing against any key."""
        m = abs(m) if row.magnitudes else m
        return rewrite(row.weight(m.like(row.nothing("f32")), m), m.like(0.0))

    return nothing


def _adjusted(row: ops.Twist) -> Rule:
    adjust = row.adjust
    assert adjust is not None

    @rule(Rounding.REASSOCIATES, name=f"blocks_of_{row.name}")
    def blocks(s: Val, t: Val, k: Axes, j: Axes) -> Equation:
        """The sums of two blocks, each about its own centre, adjust to the common centre and add up."""
        left, right, n, m = s.reduce(row.key, k), t.reduce(row.key, j), s.count(k), t.count(j)
        both = row.centre(left.call(ops.monoids()[row.key].combine, right), n + m)
        own, other = row.centre(left, n), row.centre(right, m)
        whole = row.weight(s, both).sum(k) + row.weight(t, both).sum(j)
        parts = adjust(row.weight(s, own).sum(k), own, both, n) + adjust(row.weight(t, other).sum(j), other, both, m)
        return rewrite(whole, parts, when=(s.free_of(j), t.free_of(k)))

    return blocks
