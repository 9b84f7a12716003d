"""Schedule families: one module each, and a list of rows for a kernel, the default first.

A family says which trees it suits (``matches``) and which rows it proposes (``rows``, best guess first); the lowering engine
is the same for all.  A new family is one module and one entry in `families`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from emmy_eq import loop_ir
from emmy_eq.codegen import tile_ir
from emmy_eq.codegen.families import attention, contraction, decode, default, matrix, reduction, scan, warpgroups, wgmma
from emmy_eq.codegen.families import map as maps
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.schedule import Schedule, check
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.extract.cost import unit_of
from emmy_eq.extract.targets import Target
from emmy_eq.extract.work import Work


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    matches: Callable[[Facts], bool]
    rows: Callable[[Facts, Target], Iterator[Schedule]]


@cache
def families() -> dict[str, Family]:
    """The families by name, in the order in which they are asked."""
    found = (
        Family("map", maps.matches, maps.rows),
        Family("decode", decode.matches, decode.rows),
        Family("warpgroups", warpgroups.matches, warpgroups.rows),
        Family("attention", attention.matches, attention.rows),
        Family("wgmma", wgmma.matches, wgmma.rows),
        Family("matrix", matrix.matches, matrix.rows),
        Family("contraction", contraction.matches, contraction.rows),
        Family("matrix_f32", matrix.matches, matrix.rows_behind_fma),
        Family("reduction", reduction.matches, reduction.rows),
        Family("scan", scan.matches, scan.rows),
        Family("default", default.matches, default.rows),
    )
    return {f.name: f for f in found}


def schedules(kernel: loop_ir.Kernel, target: Target) -> list[Schedule]:
    """Legal rows for ``kernel``, the default first.  The first lowers; a later one may still be refused by `lower`."""
    facts = Facts(tile_ir.to_tile(kernel, Schedule(32)))
    out: list[Schedule] = []
    for family in _ordered([f for f in families().values() if f.matches(facts)], kernel, target):
        rows = (normal(row, facts.extents) for row in family.rows(facts, target))
        out += [row for row in dict.fromkeys(rows) if row not in out and _legal(kernel, row)]
    for n, row in enumerate(out):
        if _lowers(kernel, row, target):
            return out[n:]
    raise Unsupported("kernel", f"no schedule row lowers {kernel.name}")


def _ordered(matching: list[Family], kernel: loop_ir.Kernel, target: Target) -> list[Family]:
    """What warpgroups can multiply is left to a warp or a thread first, where the model expects that to be faster: small products are."""
    if "wgmma" not in {f.name for f in matching}:
        return matching
    unit = unit_of(Work(kernel), target)
    first = "wgmma" if unit.startswith("wgmma") else "contraction" if unit.startswith("fma") else "matrix"
    return sorted(matching, key=lambda f: f.name != first)


def normal(row: Schedule, extents: Mapping[str, int]) -> Schedule:
    """``row`` with one step where one is enough, so that equal rows are spelled alike."""
    reduce = tuple((name, replace(s, steps=1) if s.blocks * s.tile >= extents[name] else s) for name, s in row.reduce)
    return replace(row, reduce=reduce)


def _legal(kernel: loop_ir.Kernel, row: Schedule) -> bool:
    try:
        check(row)
        tile_ir.to_tile(kernel, row)
    except InvalidInput:
        return False
    return True


def _lowers(kernel: loop_ir.Kernel, row: Schedule, target: Target) -> bool:
    try:
        lower(tile_ir.to_tile(kernel, row), target)
    except (Unsupported, InvalidInput):
        return False
    return True
