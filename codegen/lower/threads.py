"""Digits: which bits of the block and thread numbers each axis of a tile gets from its schedule row."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from emmy_eq import index as ix
from emmy_eq.codegen.schedule import Split
from emmy_eq.codegen.tile_ir import Fold, Tile, axes, walk
from emmy_eq.errors import InvalidInput
from emmy_eq.index import Idx


@dataclass(frozen=True, slots=True)
class Digits:
    """Per axis: the block coordinate, the steps of its serial loop, and the stride of its digit in the thread number.  ``number``: that
    of the tile of results at hand, ``count`` of which are dealt to ``grid`` blocks."""

    number: Idx
    count: int
    grid: int
    block: dict[str, Idx]
    steps: dict[str, int]
    stride: dict[str, int]
    split: int  # blocks that share one output tile (folds split over blocks)
    tiles: int  # blocks that have output tiles of their own


def digits(tile: Tile, number: Idx) -> Digits:
    row, roles = tile.schedule, axes(tile.body)
    counts = {a.name: -(-a.extent // (row.split(a.name).steps * row.split(a.name).tile)) for a in roles.outer}
    tiles = prod(counts.values())
    split = prod(row.split(a.name).blocks for a in roles.folded)
    block = _raster(row.raster, counts, number % tiles if split > 1 else number)
    steps = {a.name: row.split(a.name).steps for a in roles.outer}
    rest = number // tiles
    given = dict(row.reduce)
    for a in roles.folded:
        s = given.get(a.name, Split(steps=0))
        block[a.name] = rest % s.blocks if s.blocks > 1 else ix.const(0)
        rest = rest // s.blocks
        steps[a.name] = s.steps or -(-a.extent // (s.blocks * s.tile))
    count = max(tiles * split, 1)
    return Digits(number, count, min(row.persistent or count, count), block, steps, _strides(tile), split, tiles)


def _raster(order: str, counts: dict[str, int], bx: Idx) -> dict[str, Idx]:
    """Block coordinates from the block number; see `emmy_eq.codegen.schedule`."""
    out: dict[str, Idx] = {}
    names = list(counts)
    if order[:4] == "late":
        bx = bx * -1 + (prod(counts.values()) - 1)
        names.reverse()
    large = [n for n in names if counts[n] > 1]
    if order[:4] == "late" and order != "late" and large:
        last, group = large[0], int(order[4:])
        outer = prod(counts.values()) // counts[last]
        if outer % group:
            raise InvalidInput(f"RASTER={order}", f"{outer} blocks along all axes but {last} are no multiple of {group}")
        out[last] = bx // group % counts[last]
        bx = bx // (group * counts[last]) * group + bx % group
        names = [x for x in counts if x != last]
    if order[0] == "g" and len(large) >= 2:
        m, n = large[-2:]
        group = int(order[1:])
        if counts[m] % group:
            raise InvalidInput(f"RASTER={order}", f"{counts[m]} rows of blocks are no multiple of {group}")
        plane = bx % (counts[m] * counts[n])
        out[n] = plane // group % counts[n]
        out[m] = plane // (group * counts[n]) * group + plane % group
        bx = bx // (counts[m] * counts[n])
        names = [x for x in names if x not in (m, n)]
    for name in reversed(names):
        out[name] = bx % counts[name]
        bx = bx // counts[name]
    return out


def _strides(tile: Tile) -> dict[str, int]:
    row, roles = tile.schedule, axes(tile.body)
    stride = {a.name: 1 for a in (*roles.outer, *roles.folded)}
    widest = 1
    for f in walk(tile.body):
        if isinstance(f, Fold) and not f.is_map:
            top, low = row.threads, 1
            for a in f.axes:
                s = row.split(a.name)
                if s.slow:
                    top //= s.threads
                    stride[a.name] = top
            for a in reversed(f.axes):
                s = row.split(a.name)
                if not s.slow and s.threads > 1:
                    stride[a.name] = low
                    low *= s.threads
            widest = max(widest, row.threads // max(top, 1))
            if low > row.threads:
                raise InvalidInput(f"WORK=t{row.threads}", f"a fold of REDUCE needs {low} threads")
    top = row.threads // widest
    for slow in (True, False):
        for name, s in row.tile:
            if s.slow == slow and s.threads > 1:
                top //= s.threads
                stride[name] = top
    if top < 1:
        raise InvalidInput(f"WORK=t{row.threads}", "TILE and the w parts of REDUCE need more threads")
    return stride
