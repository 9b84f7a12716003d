"""The row that always lowers: a thread an output element, folds in serial steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emmy_eq.codegen.families import map as maps
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.schedule import Schedule, Split
from emmy_eq.extract.targets import Target


def matches(facts: Facts) -> bool:
    return True


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    reduce = tuple((a.name, Split(steps=0)) for a in facts.axes.folded)
    flat = maps.elementwise(facts, target, 1, 128)
    tile = tuple((name, Split(threads=s.threads)) for name, s in flat.tile)
    yield replace(flat, tile=tuple(x for x in tile if x[1].tile > 1), reduce=reduce)
