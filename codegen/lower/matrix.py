"""Products on tensor cores: mma.sync on fragments that ldmatrix reads from shared memory.

The accumulator has the layout that the row's m16 and n8 give its axes (`layout.atom_map`), which is mma.sync's own; so what
follows the product (bias, activation, residual, casts) is lowered as in any other layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import stage
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment, Scope
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.codegen.schedule import ATOMS, WARP
from emmy_eq.codegen.tile_ir import halves
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, substitute
from emmy_eq.loop_ir import Carry

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

EDGE = 8  # rows and columns of the matrices that ldmatrix reads
LANE = TID % WARP


@dataclass(frozen=True, slots=True)
class Product:
    """16-bit values, which vary along the row's axis m (``left``) or n (``right``), and both along its axis k."""

    left: str
    right: str


def product(e: Engine, c: Carry, folded: frozenset[str]) -> Product | None:
    """What tensor cores can multiply for ``c``, in the row's tiles; None: nothing."""
    if not e.row.atoms or c.name != "sum" or (found := halves(c.args[0], e.known)) is None:
        return None
    m, n, kk = (e.row.atoms[a] for a in "mnk")
    axes = [set(e.known[x].axes) for x in found]
    if m not in axes[0]:
        found, axes = found[::-1], axes[::-1]
    split = {m, n, kk}
    if axes[0] & split != {m, kk} or axes[1] & split != {n, kk} or any(stage.bound_here(e, x, folded) for x in found):
        return None
    return Product(*found)


def multiply(e: Engine, products: Mapping[str, tuple[Product, Fragment]], tiles: Mapping[str, SharedTile], maps: Scope) -> None:
    """Add this step's products to their accumulators."""
    m, n, kk = (e.row.atoms[a] for a in "mnk")
    rows, columns, steps = (e.row.split(a).regs for a in (m, n, kk))
    for step in range(steps):
        found: dict[str, list[tuple[str, ...]]] = {}
        for p, total in products.values():
            if p.left not in found:
                found[p.left] = _fragments(e, tiles[p.left], m, rows, maps[kk], step)
            if p.right not in found:
                found[p.right] = _fragments(e, tiles[p.right], n, columns, maps[kk], step)
            for i, a in enumerate(found[p.left]):
                for j, b in enumerate(found[p.right]):
                    d = _accumulators(total, m, i, n, j)
                    e.b.emit(k.Mma((ATOMS["m"], ATOMS["n"], ATOMS["k"]), e.known[p.left].dtype, d, a, b))


def _accumulators(total: Fragment, m: str, i: int, n: str, j: int) -> tuple[str, ...]:
    """Rows g, g + 8 of step ``i``, columns 2q, 2q + 1 of step ``j``."""
    others = dict.fromkeys(total.axes, 0)
    return tuple(str(total.at({**others, m: 2 * i + row, n: 2 * j + column})) for row in (0, 1) for column in (0, 1))


def _fragments(e: Engine, tile: SharedTile, axis: str, count: int, kk: AxisMap, step: int) -> list[tuple[str, ...]]:
    """The operand registers of the warp's ``count`` steps along ``axis`` (m or n), for one step along k.

    One ldmatrix reads four 8x8 matrices: of m, both halves of 16 rows, then the same in the second half of k; of n, both halves
    of k for 8 columns, then for 8 more.
    """
    if set(tile.axes) != {axis, kk.axis}:
        raise Unsupported("schedule", f"tensor cores take tiles of two axes, not {', '.join(tile.axes)}")
    second = axis == e.row.atoms["n"]
    size = 2 * EDGE
    out: list[tuple[str, ...]] = []
    for first in range(0, count * ATOMS["n" if second else "m"], size):
        whole = not second or first + size <= count * EDGE
        names = tuple(e.b.fresh("f") for _ in range(4 if whole else 2))
        e.b.emit(k.Ldmatrix(names, tile.array, _row(e, tile, axis, first, kk, step, second), tile.axes[-1] == axis))
        out += [names[:2], names[2:]] if second and whole else [names]
    return out


def _row(e: Engine, tile: SharedTile, axis: str, first: int, kk: AxisMap, step: int, second: bool) -> Idx:
    """Where the row of 8 elements lies that this lane names: row lane%8 of matrix lane//8."""
    low, high = LANE // EDGE % 2 * EDGE, LANE // (2 * EDGE) * EDGE
    along, deep = (high, low) if second else (low, high)
    if tile.axes[-1] == axis:
        deep = deep + LANE % EDGE
    else:
        along = along + LANE % EDGE
    there = {axis: e.home[axis].warp() + first + along, kk.axis: kk.base + step * ATOMS["k"] + deep}
    return e.b.simplify(substitute(tile.address(), there))
