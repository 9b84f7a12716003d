"""Shared tiles: a value written by threads in one layout and read in another."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen.lower import access
from emmy_eq.codegen.lower.access import Memory
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import AxisMap, Fragment, Scope, bits
from emmy_eq.codegen.tile_ir import Fold
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Let, Load
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

ZERO = ix.const(0)
MATRIX_ROW = 16  # bytes that ldmatrix reads at once: rows an odd number of these apart lie in different banks
MIN_COPY = 4  # bytes of a cp.async
MIN_TRANSPOSE = 8  # elements along both axes that make a detour through shared memory pay


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A block's part of a value: where each axis begins (``origin``) and its stride in ``array``."""

    array: str
    dtype: str
    axes: tuple[str, ...]
    origin: tuple[Idx, ...]
    stride: tuple[int, ...]
    start: Idx = ZERO

    def address(self) -> Idx:
        """The element's place, over the axes' coordinates."""
        out = self.start
        for a, origin, stride in zip(self.axes, self.origin, self.stride, strict=True):
            out = out + (var(a) - origin) * stride
        return out


def allocate(e: Engine, name: str, reader: Scope, folded: frozenset[str], buffers: int = 1) -> SharedTile:
    """A tile for ``name`` over the tile of ``reader``; folded axes outermost, then as the reader's threads walk, rows padded.

    What tensor cores read keeps the order of its memory: they take rows along either axis.
    """
    v = e.known[name]
    tiled = [a for a in v.axes if reader[a].tile > 1]
    if v.name in e.matrices:
        near = nearest(e, name)
        order = sorted(tiled, key=lambda a: (near is not None and a == near.axis, a in folded))
    else:
        order = sorted(tiled, key=lambda a: (a not in folded, reader[a].vector > 1, reader[a].threads > 1, -reader[a].stride, a))
    stride, size = {}, 1
    for n, a in enumerate(reversed(order)):
        stride[a] = size
        size *= reader[a].tile
        if n == 0 and len(order) > 1:
            size += matrix_pad(v.dtype, a in folded) if v.name in e.matrices else pad(reader[a], v.dtype)
    array = e.b.array(v.dtype, size * buffers)
    origin = tuple(reader[a].base for a in order)
    return SharedTile(array, v.dtype, tuple(order), origin, tuple(stride[a] for a in order))


def pad(m: AxisMap, dtype: str) -> int:
    """Elements between rows, so that a column does not fall into one bank; rows stay aligned to the vectors read."""
    return min(m.vector, access.widest(dtype))


def matrix_pad(dtype: str, deep: bool) -> int:
    """Elements between rows of what tensor cores read, along k (``deep``) or across it, where f32 is read by element, 8 of 4 rows."""
    return MATRIX_ROW // itemsize(dtype) if deep else 8


def put(e: Engine, tile: SharedTile, frag: Fragment, writer: Scope) -> None:
    address = tile.address()
    over = tuple(sorted(tile.axes))
    where = access.owner(e.b, bits(writer, over))
    frag = frag.slice({a: 0 for a in frag.axes if a not in over})  # of an axis without extent in the tile
    access.store(e.b, Memory("shared", tile.array, tile.dtype), frag, lambda _: address, writer, over, where)


def copies(e: Engine, name: str, scope: Scope) -> bool:
    """Whether cp.async can bring ``name`` to shared memory: it is loaded as it is, at least 4 bytes at a time."""
    v = e.known[name]
    if v.name not in e.matrices or not isinstance(v.stmt, Load) or v.args:
        return False
    offset = access.flat(v.stmt.index, e.buffers[v.stmt.buffer].shape)
    found = access.groups(e.b, lambda _: offset, scope, v.axes, v.dtype)
    return all(len(g.points) * itemsize(v.dtype) >= MIN_COPY for g in found)


def copy(e: Engine, tile: SharedTile, name: str, scope: Scope) -> None:
    """Begin to copy ``name`` to ``tile``."""
    v, s = e.known[name], e.known[name].stmt
    assert isinstance(s, Load)
    offset = access.flat(s.index, e.buffers[s.buffer].shape)
    where = access.owner(e.b, bits(scope, v.axes))
    source, target = Memory("global", s.buffer, v.dtype), Memory("shared", tile.array, v.dtype)
    access.copy(e.b, source, offset, target, tile.address(), scope, v.axes, where)


def get(e: Engine, tile: SharedTile, reader: Scope, name: str) -> Fragment:
    address = tile.address()
    over = e.known[name].axes
    return access.load(e.b, Memory("shared", tile.array, tile.dtype), lambda _: address, reader, over)


def convert(e: Engine, name: str, reader: Scope) -> Fragment:
    """``name`` in layout ``reader``, computed where it is at home (or in the layout its loads like best)."""
    tile = filled(e, name, e.home, frozenset())
    with e.b.at(e.level(reader, name)):
        frag = get(e, tile, reader, name)
        e.bind(name, reader, frag)
    return frag


def filled(e: Engine, name: str, home: Scope, folded: frozenset[str]) -> SharedTile:
    """A shared tile that holds ``name`` over the tile of ``home``, made before the loops that it does not depend on."""
    tile = e.b.find(place(e, name, home))
    if isinstance(tile, SharedTile):
        return tile
    with e.b.at(e.level(home, name)):
        tile = allocate(e, name, home, folded)
        write(e, tile, name, home, folded)
        e.b.remember(place(e, name, home), tile)
    return tile


def place(e: Engine, name: str, home: Scope) -> tuple[object, ...]:
    """What the builder remembers the tile of ``name`` under."""
    v = e.known[name]
    return ("tile", v.name, *(home[a] for a in v.axes))


def write(e: Engine, tile: SharedTile, name: str, home: Scope, folded: frozenset[str]) -> None:
    """Compute ``name`` and put it into ``tile``."""
    scope = writer(e, name, home, folded)
    put(e, tile, value(e, name, scope, folded), scope)


def writer(e: Engine, name: str, home: Scope, folded: frozenset[str]) -> Scope:
    """The layout in which ``name`` is computed for a shared tile: its home if a fold's result fixes that, else what its loads like."""
    s = e.known[name].stmt
    return home if isinstance(s, Fold) or bound_here(e, name, folded) else cooperative(e, name, home)


def value(e: Engine, name: str, scope: Scope, folded: frozenset[str]) -> Fragment:
    """``name`` in ``scope``, zero beyond the folded axes (as a load is by itself)."""
    v = e.known[name]
    frag = e.value(name, scope)
    if isinstance(v.stmt, Load):
        return frag
    return e.masked(frag, {a: scope[a] for a in v.axes if a in folded}, literal(v.dtype, 0))


def bound_here(e: Engine, name: str, folded: frozenset[str]) -> bool:
    """Whether ``name`` is made of results of folds inside the fold over ``folded``."""
    v = e.known[name]
    if isinstance(v.stmt, Fold):
        return bool(folded & set(v.axes))
    return v.folds and any(bound_here(e, a, folded) for a in v.args)


def cooperative(e: Engine, name: str, home: Scope) -> Scope:
    """A layout over all threads in which ``name``'s loads are contiguous."""
    v = e.known[name]
    tiled = [a for a in v.axes if home[a].tile > 1]
    if not tiled:
        return home
    near = nearest(e, name)
    first = near.axis if near is not None else tiled[-1]
    order = [first, *(a for a in reversed(tiled) if a != first)]
    total = 1
    for a in tiled:
        total *= home[a].tile
    threads, stride = e.b.threads, 1
    out = dict(home)
    widest = min(access.widest(v.dtype), max(total // threads, 1), near.width if near is not None else access.VECTOR_ELEMENTS)
    for n, a in enumerate(order):
        m = home[a]
        vector = 1
        while n == 0 and 2 * vector <= widest and m.extent % (2 * vector) == 0 and m.tile % (2 * vector) == 0:
            vector *= 2
        share = 1
        while share * 2 * stride <= threads and m.tile // vector % (share * 2) == 0:
            share *= 2
        out[a] = AxisMap(a, m.extent, m.base, m.tile // vector // share, share, stride, vector)
        stride *= share
    return out


@dataclass(frozen=True, slots=True)
class Walk:
    """An axis of a tile, the elements of memory between neighbours along it, and how many at most one access can take."""

    axis: str
    step: int
    width: int


def nearest(e: Engine, name: str) -> Walk | None:
    """Along the axis of the tile along which the largest load under ``name`` walks memory in the smallest steps."""
    found = [(len(e.known[load.name].axes), walk) for load in loads(e, name) if (walk := _walk(e, load)) is not None]
    return max(found, key=lambda f: (f[0], -f[1].step, f[1].width))[1] if found else None


def _walk(e: Engine, load: Load) -> Walk | None:
    offset = ix.simplify(access.flat(load.index, e.buffers[load.buffer].shape), _extents(e, load))
    steps = [(c, a) for a, c in access.strides(offset) if a in e.home and e.home[a].tile > 1 and c > 0]
    if not steps:
        return None
    step, axis = min(steps, key=lambda s: s[0])
    others = gcd(*(c for x, c in ix.terms(offset) if (x, c) != (var(axis), 1))) or access.VECTOR_ELEMENTS
    return Walk(axis, step, others & -others if step == 1 else 1)


def _extents(e: Engine, load: Load) -> dict[str, int]:
    limit = max(e.buffers[load.buffer].shape, default=1)
    extents = {a: m.extent for a, m in e.home.items()}
    return {**{n: limit for i in load.index for n in ix.variables(i)}, **extents}


def loads(e: Engine, name: str) -> list[Load]:
    """The loads under ``name``, down to folds."""
    s = e.known[name].stmt
    if isinstance(s, Load):
        return [s]
    return [x for a in s.args for x in loads(e, a)] if isinstance(s, Let) else []


def transposes(e: Engine, s: Load, scope: Scope) -> bool:
    """Whether ``scope``'s neighbouring threads would read ``s`` far apart, though another axis of the tile is contiguous."""
    if e.row.stage.depth == 0 or any(scope[a] != e.home.get(a) for a in e.known[s.name].axes):
        return False
    near = nearest(e, s.name)
    if near is None or near.step != 1 or scope[near.axis].tile < MIN_TRANSPOSE or scope[near.axis].stride == 1:
        return False
    return any(m.stride == 1 and m.threads >= MIN_TRANSPOSE for a, m in scope.items() if a in e.known[s.name].axes)
