"""Tile IR: a kernel as a tree of folds, with one schedule row.

    Tile      name, inputs, outputs, body, schedule
    Fold      axes, body, carries, observer     carries () and observer (): a map over the axes (a parallel loop)
    Let Load Store                              as in Loop IR

The tree says what is computed and nothing of where; the row says where, and nothing of what.  A fold is classified by
its carries: ``map``, ``reduction``, ``scan`` (it has an observer), ``contraction`` (a sum of a product whose factors have
different free axes), ``twisted``.  Inside an observer the running value of carry ``v`` is named ``v~``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from emmy_eq import loop_ir
from emmy_eq.codegen import schedule as sched
from emmy_eq.codegen.schedule import Schedule, Split
from emmy_eq.errors import InvalidInput
from emmy_eq.index import variables
from emmy_eq.loop_ir import Axis, Buffer, Carry, Let, Load, Store
from emmy_eq.ops import HALVES, monoids
from emmy_eq.rules.certificates import may_split
from emmy_eq.terms import from_bits


@dataclass(frozen=True, slots=True)
class Fold:
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...] = ()
    observer: tuple[Stmt, ...] = ()

    @property
    def is_map(self) -> bool:
        return not self.carries


Stmt = Let | Load | Store | Fold


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Value:
    """A definition: the statement that makes it, and the axes it varies with (sorted).

    Statements that compute the same are one value: a row that three loops load is read once if it stays in registers.
    """

    name: str
    stmt: Let | Load | Fold
    axes: tuple[str, ...]
    args: tuple[str, ...]
    dtype: str
    folds: bool  # whether a fold's result is among what it is made of


def to_tile(kernel: loop_ir.Kernel, schedule: Schedule) -> Tile:
    """``kernel`` under ``schedule``; raises `InvalidInput` where the row does not fit the kernel's axes."""
    tile = Tile(kernel.name, kernel.inputs, kernel.outputs, _tree(kernel.body), schedule)
    verify(tile)
    return tile


def _tree(body: tuple[loop_ir.Stmt, ...]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, loop_ir.Loop):
            out.append(Fold(s.axes, _tree(s.body)))
        elif isinstance(s, loop_ir.Fold):
            running = {r: f"{r}~" for c in s.carries for r in c.results}
            out.append(Fold(s.axes, _tree(s.body), s.carries, tuple(_rename(o, running) for o in _tree(s.observer))))
        else:
            out.append(s)
    return tuple(out)


def _rename(s: Stmt, to: dict[str, str]) -> Stmt:
    """``s`` reading other values."""

    def new(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(to.get(n, n) for n in names)

    if isinstance(s, Let):
        return replace(s, args=new(s.args))
    if isinstance(s, Load):
        return replace(s, indices=new(s.indices))
    if isinstance(s, Store):
        return replace(s, value=to.get(s.value, s.value))
    return replace(
        s,
        body=tuple(_rename(x, to) for x in s.body),
        carries=tuple(replace(c, args=new(c.args)) for c in s.carries),
        observer=tuple(_rename(x, to) for x in s.observer),
    )


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, a fold before what is in it."""
    for s in body:
        yield s
        if isinstance(s, Fold):
            yield from walk(s.body)
            yield from walk(s.observer)


def is_gather(name: str) -> bool:
    """Whether a variable of a load's index is a data-dependent coordinate (``g0``), not an axis."""
    return name[0] == "g" and name[1:].isdigit()


def values(body: tuple[Stmt, ...]) -> dict[str, Value]:
    """Every value by each of its names, running carries of scans included."""
    out: dict[str, Value] = {}
    _define(body, out, {})
    return out


def _define(body: tuple[Stmt, ...], out: dict[str, Value], seen: dict[object, Value]) -> None:
    for s in body:
        if isinstance(s, Let | Load):
            out[s.name] = _scalar(s, out, seen)
        elif isinstance(s, Fold):
            _define(s.body, out, seen)
            _carries(s, out)
            _define(s.observer, out, seen)


def _scalar(s: Let | Load, out: dict[str, Value], seen: dict[object, Value]) -> Value:
    args = tuple(out[a].name for a in (s.args if isinstance(s, Let) else s.indices))
    same = (s.op, s.dtype, s.attr, args) if isinstance(s, Let) else (s.buffer, s.index, args)
    if same in seen:
        return seen[same]
    axes = {a for name in args for a in out[name].axes}
    if isinstance(s, Load):
        axes |= {v for i in s.index for v in variables(i) if not is_gather(v)}
    elif s.op == "iota":
        axes |= variables(s.attr)
    seen[same] = Value(s.name, s, tuple(sorted(axes)), args, s.dtype, any(out[a].folds for a in args))
    return seen[same]


def _carries(f: Fold, out: dict[str, Value]) -> None:
    """A result varies with what its arguments vary with, less the fold's axes; sums of a twist also with the key's."""
    bound = {a.name for a in f.axes}
    for carry in f.carries:
        for n, (result, dtype) in enumerate(zip(carry.results, carry.dtypes, strict=True)):
            args = carry.args[:1] if n == 0 else (carry.args[0], carry.args[n])
            axes = {a for name in args for a in out[name].axes}
            out[result] = Value(result, f, tuple(sorted(axes - bound)), args, dtype, True)
            if f.observer:
                running = f"{result}~"
                out[running] = Value(running, f, tuple(sorted(axes | bound)), args, dtype, True)


def is_product(name: str, known: Mapping[str, Value]) -> bool:
    """Whether a value is a floating product, whose sum an fma accumulates."""
    s = known[name].stmt
    return isinstance(s, Let) and s.op == "mul" and s.dtype in ("f32", "f64")


def sums_products(c: Carry, known: Mapping[str, Value]) -> bool:
    return c.kind == "monoid" and monoids()[c.name].combine == "add" and is_product(c.args[0], known)


def halves(name: str, known: Mapping[str, Value]) -> tuple[str, str] | None:
    """The 16-bit factors of an f32 product of two of one type, each cast exactly to f32: what a tensor core multiplies."""
    if not is_product(name, known) or known[name].dtype != "f32":
        return None
    casts = [known[a].stmt for a in known[name].args]
    if not all(isinstance(s, Let) and s.op == "cast" for s in casts):
        return None
    left, right = (known[a].args[0] for a in known[name].args)
    dtype = known[left].dtype
    return (left, right) if dtype in HALVES and known[right].dtype == dtype else None


def factors(name: str, known: Mapping[str, Value]) -> tuple[str, str] | None:
    """What tensor cores may multiply for an f32 product: its `halves`, else its factors as they are."""
    if (found := halves(name, known)) is not None or not is_product(name, known) or known[name].dtype != "f32":
        return found
    left, right = known[name].args
    return left, right


def kind(f: Fold, known: Mapping[str, Value]) -> str:
    """``map``, ``reduction``, ``scan``, ``contraction`` or ``twisted``."""
    if f.is_map:
        return "map"
    if f.observer:
        return "scan"
    if any(c.kind == "twist" for c in f.carries):
        return "twisted"
    for c in f.carries:
        if sums_products(c, known):
            left, right = (set(known[a].axes) for a in known[c.args[0]].args)
            if left - right and right - left:
                return "contraction"
    return "reduction"


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a tree by role, each in order of appearance: of outer loops; bound by folds; of inner loops only."""

    outer: tuple[Axis, ...]
    folded: tuple[Axis, ...]
    inner: tuple[Axis, ...]


def axes(body: tuple[Stmt, ...]) -> Axes:
    """The roles of the axes: an axis that any fold binds is folded, else it is a loop's."""
    loops: dict[str, Axis] = {}
    folded: dict[str, Axis] = {}
    for s in walk(body):
        if isinstance(s, Fold):
            for a in s.axes:
                (loops if s.is_map else folded).setdefault(a.name, a)
    outer = tuple(a for n, a in loops.items() if n not in folded)
    return Axes(outer, tuple(folded.values()), tuple(a for n, a in loops.items() if n in folded))


def verify(tile: Tile) -> None:
    """Raise `InvalidInput` where the schedule row does not fit the tree."""
    row = tile.schedule
    sched.check(row)
    roles = axes(tile.body)
    outer = {a.name: a for a in roles.outer}
    folded = {a.name: a for a in roles.folded}
    for key, given, legal in (("TILE", row.tile, outer), ("REDUCE", row.reduce, folded)):
        for name, split in given:
            if name not in legal:
                raise InvalidInput(f"{key}={name}:{split}", f"the axes it may split are {', '.join(legal) or 'none'}")
    for f in walk(tile.body):
        if isinstance(f, Fold) and not all(may_split(c.name) for c in f.carries):
            _verify_order(row, f)
    for name, split in row.reduce:
        extent, covered = folded[name].extent, split.blocks * split.steps * split.tile
        if split.steps and covered < extent:
            raise InvalidInput(f"REDUCE={name}:{split}", f"it covers {covered} of {extent} elements; write s for a serial loop")
        if split.blocks > 1:
            _verify_split(tile, name, split, {a.name for a in roles.inner})


_UNSPLIT = "a sum in order, as any fold without a certificate of its split,"


def _verify_order(row: Schedule, f: Fold) -> None:
    """One thread takes all elements in row-major order: axes an element a step, then one in tiles, then axes that a tile holds whole.
    So it is with every fold of which no certificate says that it may run in blocks: sums in order."""
    tiled = False
    for a in f.axes:
        split = row.split(a.name)
        what = f"REDUCE={a.name}:{split}"
        if split.blocks * split.threads > 1 or split.atom or (f.observer and split.vector > 1):
            raise InvalidInput(what, f"{_UNSPLIT} is one thread's, an element after the other")
        if tiled and split.tile < a.extent:
            raise InvalidInput(what, f"{_UNSPLIT} has tiles along its last axis alone")
        tiled |= split.tile > 1


def _verify_split(tile: Tile, name: str, split: Split, inner: set[str]) -> None:
    """All blocks but the last to arrive end where their partial results are joined, so that happens once."""
    what = f"REDUCE={name}:{split}"
    if name in inner:
        raise InvalidInput(what, "an axis that a loop walks as well stays in one block")
    if any(s.steps != 1 for _, s in tile.schedule.tile):
        raise InvalidInput(what, "a fold is split over blocks only where TILE axes have no serial steps")
    folds = [s for s in walk(tile.body) if isinstance(s, Fold) and not s.is_map]
    if any(f.observer for f in folds) or any(isinstance(s, Fold) and name in {a.name for a in s.axes} for f in folds for s in walk(f.body)):
        raise InvalidInput(what, "a scan, or a fold inside another, stays in one block")
    shared = [f for f in folds if any(tile.schedule.split(a.name).blocks > 1 for a in f.axes)]
    if len(shared) > 1:
        raise InvalidInput(what, "only one fold of a kernel is split over blocks")


def show(tile: Tile) -> str:
    """The tree, each fold with its kind, under its schedule row."""
    known = values(tile.body)
    lines = [f"tile {tile.name} [{sched.show(tile.schedule)}]"]
    for word, buffers in (("in", tile.inputs), ("out", tile.outputs)):
        lines += [f"  {word} {b.name}: {b.dtype}[{','.join(map(str, b.shape))}]" for b in buffers]
    _show(tile.body, known, "  ", lines)
    return "\n".join(lines)


def _show(body: tuple[Stmt, ...], known: Mapping[str, Value], pad: str, lines: list[str]) -> None:
    for s in body:
        if isinstance(s, Fold):
            lines.append(f"{pad}{kind(s, known)} {', '.join(f'{a.name} < {a.extent}' for a in s.axes)}:")
            _show(s.body, known, pad + "  ", lines)
            lines += [f"{pad}  carry {', '.join(c.results)} = {c.name}({', '.join(c.args)})" for c in s.carries]
            if s.observer:
                lines.append(f"{pad}  observe:")
                _show(s.observer, known, pad + "    ", lines)
        elif isinstance(s, Store):
            lines.append(f"{pad}store {s.buffer}[{', '.join(map(str, s.index))}] = {s.value}")
        elif isinstance(s, Load):
            gathered = f" with {', '.join(s.indices)}" if s.indices else ""
            lines.append(f"{pad}{s.name} = load {s.buffer}[{', '.join(map(str, s.index))}]{gathered}")
        else:
            attr = "" if s.attr is None else f" {from_bits(s.dtype, s.attr) if s.op == 'lit' else s.attr}"
            cast = f" -> {s.dtype}" if s.op == "cast" else ""
            lines.append(f"{pad}{s.name} = {s.op}{attr}{' ' if s.args else ''}{', '.join(s.args)}{cast}")
