"""Maps: every element for itself.  Vectors along the contiguous axis; a tile through shared memory where that axis differs
between input and output."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq.codegen.families.facts import Facts, ceil_power, floor_power, vector
from emmy_eq.codegen.schedule import WARP, Schedule, Split, Stage
from emmy_eq.extract.targets import Target

THREADS = 256


def matches(facts: Facts) -> bool:
    return not facts.folds


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    across = crossing(facts)
    if across is not None:
        yield from _transposing(facts, target, *across)
    for repeat in (4, 1, 2) if shares_rows(facts) else (1, 2, 4):
        yield elementwise(facts, target, repeat)


def shares_rows(facts: Facts) -> bool:
    """Whether an input is the same in every row, so that a thread that walks several rows reads it once."""
    out = facts.output_axis
    rows_ = next((a.name for a in reversed(facts.axes.outer) if a.name != out), None)
    found = (facts.known[s.name].axes for s in facts.loads)
    return rows_ is not None and any(out in axes and rows_ not in axes for axes in found)


def crossing(facts: Facts) -> tuple[str, str] | None:
    """(axis contiguous in a large input, axis contiguous in the output) where they differ."""
    out = facts.output_axis
    for load in facts.loads:
        along = facts.contiguous(load)
        if along is None or out is None or along == out or out not in facts.known[load.name].axes:
            continue
        if facts.extents[along] >= 8 and facts.extents[out] >= 8:
            return along, out
    return None


def _transposing(facts: Facts, target: Target, along: str, out: str) -> Iterator[Schedule]:
    large = facts.points(tuple(a.name for a in facts.axes.outer)) >= 64 * 64 * target.sms
    for edge in (64, 32) if large else (32, 64):
        inner = min(32, ceil_power(facts.extents[out]))
        outer = min(edge, ceil_power(facts.extents[along]))
        threads = THREADS // inner
        split = Split(regs=max(1, outer // threads), threads=min(outer, threads))
        tile = ((along, split), (out, Split(regs=edge // 32 if inner == 32 else 1, threads=inner)))
        yield Schedule(max(32, split.threads * inner), tile, stage=Stage(1, "shared"))


def elementwise(facts: Facts, target: Target, repeat: int, threads: int = THREADS) -> Schedule:
    """Threads fill the contiguous axis first, then the axes outside it; registers repeat over rows.  One vector a thread is
    fastest where nothing is shared (exp of 2^26: 131 us, two vectors 140 us).  Fewer where there is too little to fill the machine."""
    names = [a.name for a in facts.axes.outer]
    first = facts.output_axis if facts.output_axis in names else (names[-1] if names else None)
    if first is None:
        return Schedule(32)
    order = [first, *(n for n in reversed(names) if n != first)]
    total = facts.points(tuple(names))
    v = vector(facts.extents[first], facts.itemsize, floor_power(total // (target.sms * threads)))
    repeat = max(1, min(repeat, floor_power(total // (target.sms * threads * v))))
    splits, left = {}, threads
    for name in order:
        lanes = v if name == first else 1
        steps = -(-facts.extents[name] // lanes)
        whole = steps & -steps  # the most threads that leave none idle at the end of a row
        t = min(left, whole if whole >= WARP and len(order) > 1 else ceil_power(steps))
        splits[name] = Split(threads=t, vector=lanes)
        left //= t
    for name in (*order[1:], first):
        room = -(-facts.extents[name] // splits[name].tile)
        r = min(repeat, floor_power(room))
        s = splits[name]
        splits[name] = Split(regs=r, threads=s.threads, vector=s.vector)
        repeat //= r
    tile = tuple((n, splits[n]) for n in reversed(order) if splits[n].tile > 1)
    return Schedule(max(32, threads // left), tile)
