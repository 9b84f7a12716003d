"""Scans: a row over threads where the scanned axis is contiguous, else a thread a column."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq.codegen.families import default
from emmy_eq.codegen.families.facts import Facts, ceil_power, vector
from emmy_eq.codegen.schedule import Schedule, Split
from emmy_eq.extract.targets import Target


def matches(facts: Facts) -> bool:
    return len(facts.folds) == 1 and bool(facts.folds[0].observer) and len(facts.axes.folded) == 1 and facts.main_load is not None


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    (axis,) = facts.axes.folded
    if facts.main_load is None or facts.contiguous(facts.main_load) != axis.name:
        yield from default.rows(facts, target)
        return
    v = vector(axis.extent, facts.itemsize, 4)
    for most in (256, 32, 1024):
        t = min(most, ceil_power(-(-axis.extent // v)))
        tile: list[tuple[str, Split]] = []
        left = max(1, 256 // t)
        for a in reversed(facts.axes.outer):
            n = min(left, ceil_power(a.extent))
            if n > 1:
                tile.insert(0, (a.name, Split(threads=n)))
            left //= n
        threads = t
        for _, s in tile:
            threads *= s.threads
        yield Schedule(max(32, threads), tuple(tile), ((axis.name, Split(steps=0, threads=t, vector=v)),))
