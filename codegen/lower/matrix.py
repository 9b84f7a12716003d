"""Products on tensor cores: mma.sync on fragments read from shared memory, by ldmatrix where rows of them are whole there.

The accumulator has the layout that the row's m16 and n8 give its axes (`layout.atom_map`), which is mma.sync's own; so what
follows the product (bias, activation, residual, casts) is lowered as in any other layout.  Along a k16 axis it is that of the left
operand: a product inside the fold of another (attention's scores) is renamed, register by register, to be its left operand.
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
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment, atom_map, operand_map
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.codegen.lower.tf32 import FORMS, SCALE, Form, Parts
from emmy_eq.codegen.schedule import ATOMS, WARP
from emmy_eq.codegen.tile_ir import Fold, factors
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
    """Values that vary along axis ``m`` (``left``) or ``n`` (``right``) of the result, and both along ``k``.

    ``held``: the left one is made by the threads that multiply it, in their registers, and rounded to the right one's type there.
    """

    left: str
    right: str
    m: str
    n: str
    k: str
    held: bool

    @property
    def staged(self) -> tuple[str, ...]:
        """The operands that come from shared memory."""
        return (self.right,) if self.held else (self.left, self.right)


def weight(c: Carry) -> str:
    """The name of a twist's weights, as a value of the tile."""
    return f"{c.results[0]}~weight"


def form(e: Engine, axis: str) -> Form:
    return FORMS[e.row.split(axis).atom]


def product(e: Engine, c: Carry, n: int, folded: frozenset[str]) -> Product | None:
    """What tensor cores can multiply for component ``n`` of ``c``, in the row's tiles; None: nothing."""
    if c.kind == "twist" and n > 0:
        return _placed(e, folded, weight(c), e.known[c.args[0]].axes, c.args[n], held=True)
    if c.name != "sum" or (found := factors(c.args[0], e.known)) is None:
        return None
    pairs = [(left, right, stage.bound_here(e, left, folded)) for left, right in (found, found[::-1])]
    made = (_placed(e, folded, left, e.known[left].axes, right, held) for left, right, held in pairs)
    return next((p for p in made if p is not None), None)


def _placed(e: Engine, folded: frozenset[str], left: str, over: tuple[str, ...], right: str, held: bool) -> Product | None:
    """The product of ``left``, which varies ``over``, and ``right``, if the row gives their axes to mma.sync."""
    atoms, v = e.row.atoms, e.known[right]
    shared = [a for a in over if a in atoms and a in v.axes]
    mine, other = ([a for a in axes if a in atoms and a not in shared] for axes in (over, v.axes))
    if [len(shared), len(mine), len(other)] != [1, 1, 1] or shared[0] not in folded or atoms[shared[0]][0] != "k":
        return None
    if atoms[mine[0]][0] != "m" or atoms[other[0]][0] == "m" or stage.bound_here(e, right, folded):
        return None
    return Product(left, right, mine[0], other[0], shared[0], held) if v.dtype in form(e, shared[0]).types else None


def multiply(e: Engine, products: Sequence[tuple[Product, Fragment]], tiles: Mapping[str, SharedTile]) -> None:
    """Add this step's products to their accumulators."""
    for step in range(max(_steps(e, p.k) for p, _ in products)):
        found: dict[str, Operand] = {}
        for p, total in products:
            if step >= _steps(e, p.k):
                continue
            if p.left not in found:
                found[p.left] = held(e, p, step) if p.held else _operand(e, tiles[p.left], p.left, p.m, p.k, step, second=False)
            if p.right not in found:
                found[p.right] = _operand(e, tiles[p.right], p.right, p.n, p.k, step, second=True)
            columns = range(e.home[p.n].chunk // N)
            right = [found[p.right](j) for j in columns]
            for i in range(e.home[p.m].chunk // M):
                _add(e, p, found[p.left](i), right, [_accumulators(total, p.m, i, p.n, j) for j in columns])


def _steps(e: Engine, axis: str) -> int:
    """Steps of mma.sync along its k."""
    return e.home[axis].tile // ATOMS[e.row.split(axis).atom]


def _add(e: Engine, p: Product, left: tuple[Parts, ...], right: Sequence[tuple[Parts, ...]], totals: Sequence[Parts]) -> None:
    """The products of one step along m with all along n; column after column, so that none waits for the one before."""
    how, shape, dtype = form(e, p.k), (M, N, ATOMS[e.row.split(p.k).atom]), e.known[p.right].dtype
    small = [_zeros(e, len(total)) for total in totals if how.small]
    sums = [_zeros(e, len(total)) for total in totals] if how.promoted else totals
    for into, pairs in ((small, how.small), (sums, ((0, 0),))):
        for x, y in pairs:
            for d, parts in zip(into, right, strict=True):
                e.b.emit(k.Mma(shape, "tf32" if dtype == "f32" else dtype, d, left[x], parts[y]))
    if how.promoted:
        for one, part in zip(chain(*sums), chain(*small), strict=True):
            e.b.emit(k.Set(one, "f32", "fma", (part, literal("f32", 1 / SCALE), one)))
        for total, one in zip(chain(*totals), chain(*sums), strict=True):
            e.b.emit(k.Set(total, "f32", "add", (total, one)))


def _zeros(e: Engine, count: int) -> Parts:
    return tuple(str(e.b.declare(literal("f32", 0), "f32", {}).atoms[0]) for _ in range(count))


def _accumulators(total: Fragment, m: str, i: int, n: str, j: int) -> Parts:
    """Rows g, g + 8 of step ``i``, columns 2q, 2q + 1 of step ``j``."""
    others = dict.fromkeys(total.axes, 0)
    return tuple(str(total.at({**others, m: 2 * i + row, n: 2 * j + column})) for row in (0, 1) for column in (0, 1))


def held(e: Engine, p: Product, step: int) -> Operand:
    """The left operand from a value in the layout of a result: of rows g, g + 8, the lane's place in the first half of k, then in the
    second; pairs of 16-bit values."""
    frag, dtype = e.value(p.left, e.home), e.known[p.right].dtype
    if not isinstance(e.known[p.left].stmt, Fold):  # weights are zero beyond the fold's extent by themselves
        frag = e.masked(frag, {p.k: e.home[p.k]}, literal(frag.dtype, 0))
    others = dict.fromkeys(frag.axes, 0)
    width = e.home[p.k].vector
    op = "pack" if frag.dtype == dtype else f"pack_{dtype}"

    @cache
    def parts(n: int) -> tuple[Parts, ...]:
        first = [{**others, p.m: 2 * n + row, p.k: width * (2 * step + half)} for half in (0, 1) for row in (0, 1)]
        held = [tuple(frag.at({**x, p.k: x[p.k] + c}) for c in range(width)) for x in first]
        registers = [e.b.let(op, "i32", *pair) if width == 2 else str(pair[0]) for pair in held]
        return tuple(zip(*(form(e, p.k).parts(e.b, r) for r in registers), strict=True))

    return parts


def _operand(e: Engine, tile: SharedTile, name: str, axis: str, deep: str, step: int, second: bool) -> Operand:
    """The warp's steps along ``axis`` (m, or n of the ``second`` operand), for one step along ``deep`` (k); split into parts when
    asked for."""
    if set(tile.axes) != {axis, deep}:
        raise Unsupported("schedule", f"tensor cores take tiles of two axes, not {', '.join(tile.axes)}")
    across, kk = tile.axes[-1] == axis, e.home[deep]
    if across and tile.dtype == "f32":
        found = _by_element(e, tile, name, axis, kk, step, second)
    else:
        found = _by_rows(e, tile, axis, kk, step, second)

    @cache
    def parts(n: int) -> tuple[Parts, ...]:
        return tuple(zip(*(form(e, deep).parts(e.b, r) for r in found[n]), strict=True))

    return parts


def _by_element(e: Engine, tile: SharedTile, name: str, axis: str, kk: AxisMap, step: int, second: bool) -> list[Parts]:
    """What ldmatrix does not read: it transposes pairs of bytes."""
    if second and e.row.split(axis).atom != "n8":
        raise Unsupported("schedule", f"f32 values of a product inside a fold that do not lie along {kk.axis}, at tensor cores")
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


def _by_rows(e: Engine, tile: SharedTile, axis: str, kk: AxisMap, step: int, second: bool) -> list[Parts]:
    """One ldmatrix reads four 8x8 matrices: of m, both halves of 16 rows, then the same in the second half of k; of n, both halves
    of k for 8 columns, then for 8 more.  A row of 16 bytes is half a step along k, of 16-bit values or of tf32.
    """
    size, extent = 2 * EDGE, e.home[axis].chunk
    out: list[Parts] = []
    for first in range(0, extent, size):
        whole = not second or first + size <= extent
        names = tuple(e.b.fresh("f") for _ in range(4 if whole else 2))
        e.b.emit(k.Ldmatrix(names, tile.array, _row(e, tile, axis, first, kk, step, second), tile.axes[-1] == axis))
        parts = tuple(e.b.let("bitcast", "f32", name) for name in names) if tile.dtype == "f32" else names
        out += [parts[:2], parts[2:]] if second and whole else [parts]
    return out


def _row(e: Engine, tile: SharedTile, axis: str, first: int, kk: AxisMap, step: int, second: bool) -> Idx:
    """Where the row of 16 bytes lies that this lane names: row lane%8 of matrix lane//8.  The columns of a result that is to be the
    left operand of a product of f32 values are read in the order that makes it one: a lane's two are 4 apart."""
    row = LANE % EDGE // 2 + LANE % 2 * 4 if second and e.row.split(axis).atom in ("k8", "k8x3") else LANE % EDGE
    half = stage.MATRIX_ROW // itemsize(tile.dtype)
    low, high = LANE // EDGE % 2, LANE // (2 * EDGE)
    along, deep = (high * EDGE, low * half) if second else (low * EDGE, high * half)
    if tile.axes[-1] == axis:
        deep = deep + LANE % EDGE
    else:
        along = along + row
    there = {axis: e.home[axis].warp() + first + along, kk.axis: kk.base + step * 2 * half + deep}
    return e.b.simplify(substitute(tile.address(), there))
