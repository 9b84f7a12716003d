"""Results leave by the copy engine: each warp collects boxes of its accumulators in shared memory (stmatrix), and asks for their copies.

The buffers of the operands hold them, which are free by then.  A block that goes on with another tile has arrays for them, of two boxes a
warp: one is filled while the other leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import tma
from emmy_eq.codegen.lower.layout import TID, Fragment
from emmy_eq.codegen.lower.tma import ROW, UNIT, BoxTile
from emmy_eq.codegen.schedule import ATOMS, WARP
from emmy_eq.index import var
from emmy_eq.loop_ir import Let, Store
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

LANE = TID % WARP
ITEM = 2  # bytes of a result
PANEL, CHUNK = ROW // ITEM, UNIT // ITEM
ROWS = ATOMS["m16"]  # of a warp
BOX = ROWS * PANEL  # elements


@dataclass(frozen=True, slots=True)
class Boxes:
    """Of a warp: ``panels`` boxes of its results, side by side, in ``slots`` places.  ``own``: in arrays that hold nothing else."""

    tile: BoxTile
    panels: int
    slots: int
    own: bool


def slots(panels: int) -> int:
    """Places for a warp's boxes in an array of their own: a box's place is the same in every tile."""
    return 2 if panels % 2 == 0 else 1


def boxes(e: Engine, s: Store) -> Boxes | None:
    """Where the results of ``s`` are collected; None where they are not stored so."""
    buffer = e.buffers[s.buffer]
    if not e.producer.boxes or itemsize(buffer.dtype) != ITEM or e.inside:
        return None
    axis = {atom: a for a, atom in e.row.atoms.items()}
    m, n = axis["m16"], axis["n8"]
    over = {v for i in s.index for v in ix.variables(i)}
    shape = tma.strides(s.index, buffer.shape, {a: x.extent for a, x in e.home.items() if a in over}, ITEM)
    tiled = [a for a in e.home if (a in over and e.home[a].tile > 1) or a in (m, n)]
    if shape is None or next(iter(shape)) != var(n) or sorted(tiled) != sorted((m, n)) or not tma.boxed(shape, tiled):
        return None
    columns, panels = e.home[n].chunk, -(-e.home[n].chunk // PANEL)
    if columns % PANEL != 0 and columns < e.home[n].extent:
        return None  # the last box would reach into columns of another warp or block
    own = e.rounds is not None
    places = slots(panels) if own else panels
    array = _array(e, buffer.dtype, places * BOX * (e.row.threads // WARP), own)
    if array is None:
        return None
    parts = tma.ordered(shape, n, m)
    name = e.b.fresh("map")
    e.producer.map(name, s.buffer, buffer.dtype, e.home, parts, shape, ROWS)
    first = e.b.simplify(TID // WARP * (places * BOX))
    return Boxes(BoxTile(name, array, buffer.dtype, n, m, ROWS, 1, BOX, parts, first), panels, places, own)


def _array(e: Engine, dtype: str, size: int, own: bool) -> str | None:
    arrays = e.producer.results if own else e.producer.boxes
    found = next((x for x in arrays if x.dtype == dtype and x.size >= size), None)
    if found is None and own:
        found = k.Shared(e.b.fresh("result"), dtype, size, tma.ALIGN)
        e.b.shared.append(found)
        arrays.append(found)
    return found.name if found is not None else None


def exact(e: Engine, name: str) -> str:
    """The f32 value that ``name`` rounds to 16 bits, which `store` can do; else itself."""
    v = e.known[name]
    rounds = isinstance(v.stmt, Let) and v.stmt.op == "cast" and itemsize(v.dtype) == ITEM and e.known[v.args[0]].dtype == "f32"
    return v.args[0] if rounds else name


def store(e: Engine, frag: Fragment, to: Boxes) -> None:
    """Collect ``frag``, rounded if it is `exact`, and let one lane ask for the copies."""
    b, t = e.b, to.tile
    if not to.own:
        b.emit(k.Barrier())  # every warp is done with the operands, or with the results before
    bases = {a: x.warp() if a in (t.inner, t.outer) else x.base for a, x in e.home.items()}
    point = [ix.substitute(f, bases) for f in t.parts]
    for n in range(to.panels):
        if to.own:
            b.emit(k.If((k.Elect(),), (k.TmaWait(to.slots - 1),)))
            b.emit(k.WarpSync())
        start = b.simplify(t.start + n % to.slots * BOX)
        _collect(e, frag, t, n, start)
        b.emit(k.ProxyFence())
        b.emit(k.WarpSync())
        here = tuple(b.simplify(x) for x in (point[0] + n * PANEL, *point[1:]))
        b.emit(k.If((k.Elect(),), (k.TmaStore(t.map, here, t.array, start), k.TmaCommit())))
    if not to.own:
        finish(e)


def finish(e: Engine) -> None:
    """Shared memory stays until all results have left it."""
    e.b.emit(k.If((k.Elect(),), (k.TmaWait(0),)))


def _collect(e: Engine, frag: Fragment, t: BoxTile, panel: int, start: ix.Idx) -> None:
    """16 rows and 16 columns of a warp at a time: lane%16 names a row, lane//16 the second 8 columns."""
    m, n = t.outer, t.inner
    first = panel * (PANEL // CHUNK)
    last = min(first + PANEL // CHUNK, e.row.split(n).regs)
    for step in range(first, last, 2):
        pairs = tuple(_pair(e, frag, m, row, n, step + j, t.dtype) for j in range(min(2, last - step)) for row in (0, 1))
        along = (step - first) * CHUNK + LANE // ROWS * CHUNK
        e.b.emit(k.Stmatrix(pairs, t.array, tma.element(e, t, start, along, LANE % ROWS)))


def _pair(e: Engine, frag: Fragment, m: str, row: int, n: str, step: int, dtype: str) -> str:
    """Columns 2q and 2q + 1 of 8, of row g or g + 8."""
    low, high = (frag.at({**dict.fromkeys(frag.axes, 0), m: row, n: 2 * step + column}) for column in (0, 1))
    return e.b.let("pack" if frag.dtype == dtype else f"pack_{dtype}", "i32", low, high)
