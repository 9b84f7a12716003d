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
from emmy_eq.codegen.lower.tma import ALIGN, PANEL, BoxTile
from emmy_eq.codegen.schedule import ATOMS
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

ROWS = 64  # of a warpgroup


def multiply(e: Engine, products: Sequence[tuple[Product, Fragment]], tiles: Mapping[str, BoxTile]) -> None:
    """Begin to add this step's products to their accumulators."""
    e.b.emit(k.WgmmaFence())
    for step in range(max(e.row.split(p.k).regs for p, _ in products)):
        for p, total in products:
            a, b, columns = tiles[p.left], tiles[p.right], e.home[p.n].chunk
            left, right = (_corner(e, a, p.m, ROWS, p.k, step), _corner(e, b, p.n, columns, p.k, step))
            d, one = _accumulators(total, p.m, p.n), literal("i32", 1)
            leading = (a.rows * PANEL * itemsize(a.dtype), b.rows * PANEL * itemsize(b.dtype))
            turned = (a.inner == p.m, b.inner == p.n)
            e.b.emit(k.Wgmma(columns, a.dtype, d, (a.array, left), (b.array, right), one, *turned, leading, (ALIGN, ALIGN)))
    e.b.emit(k.WgmmaCommit())


def _accumulators(total: Fragment, m: str, n: str) -> tuple[str, ...]:
    """Of each 8 columns: columns 2q, 2q + 1 of row g, then of row g + 8."""
    others, shape = dict.fromkeys(total.axes, 0), total.shape()
    return tuple(
        str(total.at({**others, m: row, n: 2 * step + column})) for step in range(shape[n] // 2) for row in (0, 1) for column in (0, 1)
    )


def _corner(e: Engine, tile: BoxTile, axis: str, size: int, kk: str, step: int) -> Idx:
    """Where the warpgroup's operand begins that has ``size`` elements along ``axis``, for one step along k."""
    along = _group(e.home[axis], size)
    deep = step * ATOMS["k16"]
    if tile.inner == kk:
        return e.b.simplify(tile.start + deep // PANEL * tile.rows * PANEL + along * PANEL + deep % PANEL)
    if e.home[axis].tile != size and size % PANEL:
        raise Unsupported(
            "schedule", f"{size} columns a warpgroup of an operand that is contiguous along them; multiples of {PANEL} can be"
        )
    return e.b.simplify(tile.start + along // PANEL * (tile.rows * PANEL) + deep * PANEL)


def _group(m: AxisMap, size: int) -> Idx:
    """Where this thread's warpgroup begins within the block's elements of an axis."""
    if m.tile == size:
        return ix.const(0)
    return TID // m.warp_stride % m.warps // (size // m.chunk) * size
