"""Products on tensor cores by warpgroups (wgmma, sm_90a), of operands where the copy engine puts them.

The accumulator of a warpgroup is that of its four warps' mma.sync steps, so layouts and epilogues are those of
`emmy_eq.codegen.lower.matrix`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment
from emmy_eq.codegen.lower.matrix import Product
from emmy_eq.codegen.lower.tma import ALIGN, BoxTile, operand, panel
from emmy_eq.codegen.schedule import ATOMS, WARPGROUP
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

ROWS = 64  # of a warpgroup
COLUMNS = 256  # of a wgmma, at most
GROUPS = 2  # warpgroups that take turns
TURNS = 2  # the first of their named barriers

Sum = tuple[Product, Fragment]  # and what it is added to
Held = Mapping[str, Sequence[tuple[str, ...]]]  # by left operand: the registers of each step along k


def together(e: Engine, products: Sequence[Sum]) -> list[list[Sum]]:
    """Products of one left operand whose columns one wgmma computes, as their right operands can lie side by side."""
    out: list[list[Sum]] = []
    for p, total in products:
        found = next((g for g in out if _fits(e, [x for x, _ in g], p)), None)
        if found is None:
            out.append([(p, total)])
        else:
            found.append((p, total))
    return out


def _fits(e: Engine, group: list[Product], p: Product) -> bool:
    first, columns = group[0], e.home[p.n]
    if first.left != p.left or first.n != p.n or columns.warps > 1 or (len(group) + 1) * columns.tile > COLUMNS:
        return False
    across = {_contiguous(e, x) for x in (first, p)}
    whole = columns.tile % panel(e.known[p.right].dtype) == 0
    return p.right not in {x.right for x in group} and (across == {first.k} or (across == {first.n} and whole))


def _contiguous(e: Engine, p: Product) -> str | None:
    """The axis along which the right operand lies in memory."""
    v = e.known[p.right]
    found = operand(v.stmt, e.buffers, {a: e.home[a].extent for a in v.axes})
    return next(iter(found)).name if found is not None else None


def multiply(
    e: Engine, groups: Sequence[Sequence[Sum]], tiles: Mapping[str, BoxTile], held: Held | None = None, *, anew: bool = False
) -> None:
    """Begin to add this step's products to their accumulators (``anew``: in place of what those held).

    ``held``: the registers of left operands that are not in ``tiles``, of each step along k.
    """
    e.b.emit(k.WgmmaFence())
    for step in range(max(e.row.split(p.k).regs for g in groups for p, _ in g)):
        for group in groups:
            p = group[0][0]
            b, columns = tiles[p.right], e.home[p.n].chunk
            left, leading, turned = _left(e, p, tiles, held or {}, step)
            right = (b.array, corner(e, b, p.n, columns, p.k, step))
            d, keep = accumulators(group), literal("i32", 0 if anew and step == 0 else 1)
            pitches, turns = (leading, b.pitch * itemsize(b.dtype)), (turned, b.inner == p.n)
            e.b.emit(k.Wgmma(columns * len(group), b.dtype, d, left, right, keep, *turns, pitches, (ALIGN, ALIGN)))
    e.b.emit(k.WgmmaCommit())


def _left(
    e: Engine, p: Product, tiles: Mapping[str, BoxTile], held: Held, step: int
) -> tuple[tuple[str, ...] | tuple[str, Idx], int, bool]:
    """Registers or a place in shared memory; bytes between its panels; whether it is contiguous along m."""
    if p.held:
        return held[p.left][step], 1, False
    a = tiles[p.left]
    return (a.array, corner(e, a, p.m, ROWS, p.k, step)), a.pitch * itemsize(a.dtype), a.inner == p.m


def take_turns(e: Engine, wait: bool, *groups: int) -> None:
    """Two warpgroups multiply in turns, and compute while the other multiplies: each of ``groups`` waits for its turn, or gives the other
    that."""
    if e.row.threads != GROUPS * WARPGROUP:
        return
    for group in groups:
        barrier = k.Barrier(TURNS + (group if wait else 1 - group), GROUPS * WARPGROUP, wait)
        e.b.emit(k.If((k.Cmp(TID // WARPGROUP, "==", ix.const(group)),), (barrier,)))


def accumulators(group: Sequence[Sum]) -> tuple[str, ...]:
    """Of one wgmma."""
    return tuple(x for p, total in group for x in _accumulators(total, p.m, p.n))


def _accumulators(total: Fragment, m: str, n: str) -> tuple[str, ...]:
    """Of each 8 columns: columns 2q, 2q + 1 of row g, then of row g + 8."""
    others, shape = dict.fromkeys(total.axes, 0), total.shape()
    return tuple(
        str(total.at({**others, m: row, n: 2 * step + column})) for step in range(shape[n] // 2) for row in (0, 1) for column in (0, 1)
    )


def corner(e: Engine, tile: BoxTile, axis: str, size: int, kk: str, step: int) -> Idx:
    """Where the warpgroup's operand begins that has ``size`` elements along ``axis``, for one step along k."""
    along, width = _group(e.home[axis], size), panel(tile.dtype)
    deep = step * ATOMS[e.row.split(kk).atom]
    if tile.inner == kk:
        return e.b.simplify(tile.start + deep // width * tile.pitch + along * width + deep % width)
    if e.home[axis].tile != size and size % width:
        raise Unsupported(
            "schedule", f"{size} columns a warpgroup of an operand that is contiguous along them; multiples of {width} can be"
        )
    return e.b.simplify(tile.start + along // width * tile.pitch + deep * width)


def _group(m: AxisMap, size: int) -> Idx:
    """Where this thread's warpgroup begins within the block's elements of an axis."""
    if m.tile == size:
        return ix.const(0)
    return TID // m.warp_stride % m.warps // (size // m.chunk) * size
