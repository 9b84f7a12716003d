"""Products on tensor cores: mma.sync on fragments read from shared memory, by ldmatrix where rows of them are whole there.

The accumulator has the layout that the row's m16 and n8 give its axes (`layout.atom_map`), which is mma.sync's own; so what
follows the product (bias, activation, residual, casts) is lowered as in any other layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import stage
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment, Scope, atom_map, operand_map
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.codegen.lower.tf32 import FORMS, Form, Parts
from emmy_eq.codegen.schedule import ATOMS, WARP
from emmy_eq.codegen.tile_ir import factors
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, substitute
from emmy_eq.loop_ir import Carry
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

EDGE = 8  # rows of the matrices that ldmatrix reads, and columns of 16-bit elements
LANE = TID % WARP
M, N = ATOMS["m16"], ATOMS["n8"]

Operand = Callable[[int], tuple[Parts, ...]]  # of a step along m or n: of each part, the lane's registers


@dataclass(frozen=True, slots=True)
class Product:
    """Values that vary along the row's axis m (``left``) or n (``right``), and both along its axis k."""

    left: str
    right: str


def form(e: Engine) -> Form:
    return FORMS[e.row.split(e.row.atoms["k"]).atom]


def product(e: Engine, c: Carry, folded: frozenset[str]) -> Product | None:
    """What tensor cores can multiply for ``c``, in the row's tiles; None: nothing."""
    if not e.row.atoms or c.name != "sum" or (found := factors(c.args[0], e.known)) is None:
        return None
    m, n, kk = (e.row.atoms[a] for a in "mnk")
    axes = [set(e.known[x].axes) for x in found]
    if m not in axes[0]:
        found, axes = found[::-1], axes[::-1]
    split = {m, n, kk}
    if axes[0] & split != {m, kk} or axes[1] & split != {n, kk} or any(stage.bound_here(e, x, folded) for x in found):
        return None
    return Product(*found) if e.known[found[0]].dtype in form(e).types else None


def multiply(e: Engine, products: Mapping[str, tuple[Product, Fragment]], tiles: Mapping[str, SharedTile], maps: Scope) -> None:
    """Add this step's products to their accumulators."""
    m, n, kk = (e.row.atoms[a] for a in "mnk")
    rows, columns, steps = (e.row.split(a).regs for a in (m, n, kk))
    for step in range(steps):
        found: dict[str, Operand] = {}
        for p, total in products.values():
            for name, axis, count in ((p.left, m, rows), (p.right, n, columns)):
                if name not in found:
                    found[name] = _operand(e, tiles[name], name, axis, count, maps[kk], step)
            right = [found[p.right](j) for j in range(columns)]
            for i in range(rows):
                _add(e, e.known[p.left].dtype, found[p.left](i), right, [_accumulators(total, m, i, n, j) for j in range(columns)])


def _add(e: Engine, dtype: str, left: tuple[Parts, ...], right: Sequence[tuple[Parts, ...]], totals: Sequence[Parts]) -> None:
    """The products of one step along m with all along n; column after column, so that none waits for the one before."""
    how, atom = form(e), e.row.split(e.row.atoms["k"]).atom
    for factor, pairs in how.sums:
        sums = [_zeros(e, len(total)) for total in totals] if how.promoted else totals
        for x, y in pairs:
            for d, parts in zip(sums, right, strict=True):
                e.b.emit(k.Mma((M, N, ATOMS[atom]), "tf32" if dtype == "f32" else dtype, d, left[x], parts[y]))
        if how.promoted:
            for total, part in zip(chain(*totals), chain(*sums), strict=True):
                op, args = ("add", (total, part)) if factor == 1 else ("fma", (part, literal("f32", factor), total))
                e.b.emit(k.Set(total, "f32", op, args))


def _zeros(e: Engine, count: int) -> Parts:
    return tuple(str(e.b.declare(literal("f32", 0), "f32", {}).atoms[0]) for _ in range(count))


def _accumulators(total: Fragment, m: str, i: int, n: str, j: int) -> Parts:
    """Rows g, g + 8 of step ``i``, columns 2q, 2q + 1 of step ``j``."""
    others = dict.fromkeys(total.axes, 0)
    return tuple(str(total.at({**others, m: 2 * i + row, n: 2 * j + column})) for row in (0, 1) for column in (0, 1))


def _operand(e: Engine, tile: SharedTile, name: str, axis: str, count: int, kk: AxisMap, step: int) -> Operand:
    """The warp's ``count`` steps along ``axis`` (m or n), for one step along k; split into parts when asked for."""
    if set(tile.axes) != {axis, kk.axis}:
        raise Unsupported("schedule", f"tensor cores take tiles of two axes, not {', '.join(tile.axes)}")
    across = tile.axes[-1] == axis
    if across and tile.dtype == "f32":
        found = _by_element(e, tile, name, axis, kk, step)
    else:
        found = _by_rows(e, tile, axis, count, kk, step, across)

    @cache
    def parts(n: int) -> tuple[Parts, ...]:
        return tuple(zip(*(form(e).parts(e.b, r) for r in found[n]), strict=True))

    return parts


def _by_element(e: Engine, tile: SharedTile, name: str, axis: str, kk: AxisMap, step: int) -> list[Parts]:
    """What ldmatrix does not read: it transposes pairs of bytes."""
    second = axis == e.row.atoms["n"]
    atom = e.row.split(kk.axis).atom
    of_step = atom_map(atom, kk.axis, kk.extent, kk.base + step * ATOMS[atom], 1, 1, 1)
    here = operand_map(e.home[axis]) if second else e.home[axis]
    frag = stage.get(e, tile, {**e.home, axis: here, kk.axis: of_step}, name)
    each = 1 if second else 2
    others = dict.fromkeys(frag.axes, 0)
    return [
        tuple(str(frag.at({**others, axis: n + r, kk.axis: half})) for half in (0, 1) for r in range(each))
        for n in range(0, here.count, each)
    ]


def _by_rows(e: Engine, tile: SharedTile, axis: str, count: int, kk: AxisMap, step: int, across: bool) -> list[Parts]:
    """One ldmatrix reads four 8x8 matrices: of m, both halves of 16 rows, then the same in the second half of k; of n, both halves
    of k for 8 columns, then for 8 more.  A row of 16 bytes is half a step along k, of 16-bit values or of tf32.
    """
    second = axis == e.row.atoms["n"]
    size = 2 * EDGE
    out: list[Parts] = []
    for first in range(0, count * (N if second else M), size):
        whole = not second or first + size <= count * EDGE
        names = tuple(e.b.fresh("f") for _ in range(4 if whole else 2))
        e.b.emit(k.Ldmatrix(names, tile.array, _row(e, tile, axis, first, kk, step, second), across))
        parts = tuple(e.b.let("bitcast", "f32", name) for name in names) if tile.dtype == "f32" else names
        out += [parts[:2], parts[2:]] if second and whole else [parts]
    return out


def _row(e: Engine, tile: SharedTile, axis: str, first: int, kk: AxisMap, step: int, second: bool) -> Idx:
    """Where the row of 16 bytes lies that this lane names: row lane%8 of matrix lane//8."""
    half = stage.MATRIX_ROW // itemsize(tile.dtype)
    low, high = LANE // EDGE % 2, LANE // (2 * EDGE)
    along, deep = (high * EDGE, low * half) if second else (low * EDGE, high * half)
    if tile.axes[-1] == axis:
        deep = deep + LANE % EDGE
    else:
        along = along + LANE % EDGE
    there = {axis: e.home[axis].warp() + first + along, kk.axis: kk.base + step * 2 * half + deep}
    return e.b.simplify(substitute(tile.address(), there))
