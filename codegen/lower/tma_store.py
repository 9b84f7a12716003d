"""A block's results leave by the copy engine: accumulators to swizzled boxes in shared memory (stmatrix), boxes to global memory.

The buffers of the operands hold them, which are free by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import tma
from emmy_eq.codegen.lower.layout import TID, Fragment
from emmy_eq.codegen.lower.tma import BOX, ROW, UNIT, BoxTile
from emmy_eq.codegen.schedule import ATOMS, WARP
from emmy_eq.index import var
from emmy_eq.loop_ir import Let, Store
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

LANE = TID % WARP
ITEM = 2  # bytes of a result
PANEL, CHUNK = ROW // ITEM, UNIT // ITEM
FIRST = (k.Cmp(TID, "==", ix.const(0)),)


def tile(e: Engine, s: Store) -> BoxTile | None:
    """Where the block's part of ``s`` is collected; None where it is not stored so."""
    buffer = e.buffers[s.buffer]
    if not e.producer.boxes or itemsize(buffer.dtype) != ITEM or len(e.b.levels) > 1:
        return None
    axis = {atom: a for a, atom in e.row.atoms.items()}
    m, n = axis["m16"], axis["n8"]
    over = {v for i in s.index for v in ix.variables(i)}
    shape = tma.strides(s.index, buffer.shape, {a: x.extent for a, x in e.home.items() if a in over}, ITEM)
    tiled = [a for a in e.home if (a in over and e.home[a].tile > 1) or a in (m, n)]
    if shape is None or next(iter(shape)) != var(n) or sorted(tiled) != sorted((m, n)) or not tma.boxed(shape, tiled):
        return None
    rows, panels = e.home[m].tile, -(-e.home[n].tile // PANEL)
    size = rows * panels * PANEL
    free = next((x for x in e.producer.boxes if x.dtype == buffer.dtype and x.size >= size), None)
    ragged = e.home[n].tile % PANEL != 0 and e.home[n].tile < e.home[n].extent  # the last box would reach into the next block's columns
    if free is None or rows > BOX or ragged:
        return None
    parts = (var(n), var(m), *(f for f in shape if f not in (var(n), var(m))))
    name = e.b.fresh("map")
    e.producer.map(name, s.buffer, buffer.dtype, e.home, parts, shape, rows)
    return BoxTile(name, free.name, buffer.dtype, n, m, rows, panels, rows * PANEL, parts, ix.const(0))


def exact(e: Engine, name: str) -> str:
    """The f32 value that ``name`` rounds to 16 bits, which `store` can do; else itself."""
    v = e.known[name]
    rounds = isinstance(v.stmt, Let) and v.stmt.op == "cast" and itemsize(v.dtype) == ITEM and e.known[v.args[0]].dtype == "f32"
    return v.args[0] if rounds else name


def store(e: Engine, s: Store, frag: Fragment, to: BoxTile) -> None:
    """Collect ``frag`` in ``to``, rounded if it is `exact`, and let one thread ask for the copies."""
    b = e.b
    b.emit(k.Barrier())  # every warp is done with the operands, or with the results before
    _collect(e, frag, to)
    b.emit(k.ProxyFence())
    b.emit(k.Barrier())
    stores = tuple(k.TmaStore(to.map, point, to.array, source) for point, source in tma.panels(e, to))
    b.emit(k.If(FIRST, (*stores, k.TmaCommit(), k.TmaWait(0))))


def _collect(e: Engine, frag: Fragment, to: BoxTile) -> None:
    """16 rows and 16 columns of a warp at a time: lane%16 names a row, lane//16 the second 8 columns."""
    b, m, n = e.b, to.outer, to.inner
    row = b.simplify(e.home[m].warp() - e.home[m].base + LANE % ATOMS["m16"])
    first = b.simplify(e.home[n].warp() - e.home[n].base)
    steps = e.row.split(n).regs
    for step in range(0, steps, 2):
        whole = min(2, steps - step)
        pairs = tuple(_pair(e, frag, m, row_, n, step + j, to.dtype) for j in range(whole) for row_ in (0, 1))
        along = first + step * CHUNK + LANE // ATOMS["m16"] * CHUNK
        b.emit(k.Stmatrix(pairs, to.array, tma.element(e, to, along, row)))


def _pair(e: Engine, frag: Fragment, m: str, row: int, n: str, step: int, dtype: str) -> str:
    """Columns 2q and 2q + 1 of 8, of row g or g + 8."""
    low, high = (frag.at({**dict.fromkeys(frag.axes, 0), m: row, n: 2 * step + column}) for column in (0, 1))
    return e.b.let("pack" if frag.dtype == dtype else f"pack_{dtype}", "i32", low, high)
