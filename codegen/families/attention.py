"""Twisted contractions: attention, and any product whose operand is made by a fold of its own ((a @ b) @ c in one kernel)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from emmy_eq.codegen.families.facts import Facts, ceil_power
from emmy_eq.codegen.lower.stage import MATRIX_ROW
from emmy_eq.codegen.schedule import ATOMS, WARP, Schedule, Split, Stage
from emmy_eq.codegen.tile_ir import Fold, halves, walk
from emmy_eq.extract.products import FEW, Shape, Walk
from emmy_eq.extract.targets import Target
from emmy_eq.loop_ir import Let
from emmy_eq.ops import HALVES


@dataclass(frozen=True, slots=True)
class Warps:
    """A block's tile on tensor cores: warps along i, steps of mma.sync a warp along i and j.  ``rate``: speed of a full machine beside
    the fastest (measured on H200: 308 TFLOP/s of 16-bit values at d = 128, 253 at 64)."""

    warps: int
    rows: int
    keys: int
    rate: float

    @property
    def height(self) -> int:
        return self.warps * self.rows * ATOMS["m16"]

    def registers(self, d: int) -> int:
        """A thread's results of both products, and the first ones as the left operand of the second."""
        return self.rows * (d // 2 + 12 * self.keys)

    def shared(self, e: int, d: int) -> int:
        """Bytes of shared memory, with two buffers of keys and values; ``e``: the inner fold's extent."""
        columns = DEPTH * ATOMS["k16"] * self.keys
        return (self.height + columns) * (2 * e + MATRIX_ROW) + columns * (2 * d + MATRIX_ROW)


MATRIX = (
    Warps(4, 2, 4, 1.0),
    Warps(4, 2, 2, 0.97),
    Warps(8, 1, 8, 0.8),
    Warps(4, 1, 4, 0.75),
    Warps(4, 1, 2, 0.7),
    Warps(2, 1, 4, 0.5),
    Warps(1, 1, 4, 0.3),
)
MOST_REGISTERS = 224  # of a thread for `Warps.registers`; about 30 more hold addresses and operands
DEPTH = 2  # buffers


@dataclass(frozen=True, slots=True)
class Chain:
    """Rows i, columns d of the result; j, the outer fold's axis; and the inner folds' axes."""

    i: str | None
    d: str
    j: str
    inner: tuple[str, ...]


def chain(facts: Facts) -> Chain | None:
    """The outer fold whose operand needs an inner fold, and whose result has an axis that the operand lacks."""
    outer = {a.name for a in facts.axes.outer}
    for f in facts.folds:
        inside = [s for s in walk(f.body) if isinstance(s, Fold) and not s.is_map]
        if not inside or len(f.axes) != 1 or f.observer:
            continue
        rows = {a for s in inside for c in s.carries for r in c.results for a in facts.known[r].axes} & outer
        columns = {a for c in f.carries for r in c.results for a in facts.known[r].axes} & outer - rows
        if not columns:
            continue
        d = max(sorted(columns), key=lambda a: facts.extents[a])
        keyed = _own_rows(facts, rows, f)
        i = max(sorted(keyed), key=lambda a: facts.extents[a]) if keyed else None
        return Chain(i, d, f.axes[0].name, tuple(a.name for s in inside for a in s.axes))
    return None


def causal(facts: Facts, c: Chain) -> bool:
    """Whether positions along i and j are compared, as a causal mask does."""
    lets = (s for s in walk(facts.tile.body) if isinstance(s, Let) and s.op in ("ge", "gt", "le", "lt") and s.name in facts.known)
    return c.i is not None and any({c.i, c.j} <= set(facts.known[s.name].axes) for s in lets)


def _own_rows(facts: Facts, rows: set[str], f: Fold) -> set[str]:
    """Axes of the rows along which the other operand does not vary: those that sharing a tile of it pays for."""
    other = {a for s in walk(f.body) for r in _loads_with(facts, s, f.axes[0].name) for a in r}
    return rows - other or rows


def _loads_with(facts: Facts, s: object, axis: str) -> list[tuple[str, ...]]:
    name = getattr(s, "name", None)
    loads = {x.name for x in facts.loads}
    return [facts.known[name].axes] if name in loads and axis in facts.known[str(name)].axes else []


def matches(facts: Facts) -> bool:
    return chain(facts) is not None


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    c = chain(facts)
    assert c is not None
    height = facts.extents[c.i] if c.i is not None else 1
    others = facts.points(tuple(a.name for a in facts.axes.outer if a.name not in (c.i, c.d)))
    if rounds(facts, c):
        yield from _on_tensor_cores(facts, target, c, height, others)
    inner = [f for f in facts.folds if f.axes[0].name in c.inner]
    walk = Walk(
        height=height,
        width=facts.extents[c.d],
        others=others,
        keys=facts.extents[c.j],
        inner=tuple(facts.extents[a] for a in c.inner),
        inside=sum(prod(a.extent for a in f.axes) * len(f.carries) for f in inner),
    )
    for shape in walk.shapes(target):
        yield _row(facts, c, shape)


def rounds(facts: Facts, c: Chain) -> bool:
    """Whether tensor cores take both products: of 16-bit values, the second one's left operand rounded to such."""
    known = facts.known
    for f in facts.folds:
        if f.axes[0].name in c.inner and not (len(f.axes) == 1 and all(x.name == "sum" and halves(x.args[0], known) for x in f.carries)):
            return False
        for x in f.carries if f.axes[0].name == c.j else ():
            wide = [n for n, r in enumerate(x.results) if c.d in known[r].axes]
            if not all(known[x.args[n]].dtype in HALVES if x.kind == "twist" else halves(x.args[n], known) is not None for n in wide):
                return False
    return len(c.inner) == 1


def _on_tensor_cores(facts: Facts, target: Target, c: Chain, height: int, others: int) -> Iterator[Schedule]:
    if c.i is None or height <= FEW:
        return
    d, (e, *_) = facts.extents[c.d], (facts.extents[a] for a in c.inner)

    def seconds(w: Warps) -> float:
        blocks = others * -(-height // w.height)
        resident = max(1, min(2, target.shared_per_sm // w.shared(e, d)))
        return -(-blocks // (target.sms * resident)) * resident * w.height / w.rate

    fits = [w for w in MATRIX if w.registers(d) <= MOST_REGISTERS and w.shared(e, d) <= target.shared_per_block]
    raster = "late" if causal(facts, c) else "row"
    for w in sorted(fits, key=seconds):
        tile = (
            (c.i, Split(regs=w.rows, threads=w.warps, slow=w.warps > 1, atom="m16")),
            (c.d, Split(regs=-(-d // ATOMS["n8"]), atom="n8")),
        )
        inner = Split(regs=-(-e // ATOMS["k16"]), atom="k16")
        folds = tuple((a.name, Split(steps=0, regs=w.keys, atom="k16") if a.name == c.j else inner) for a in facts.axes.folded)
        yield Schedule(WARP * w.warps, tile, folds, Stage(DEPTH, "async"), raster)


def _row(facts: Facts, c: Chain, s: Shape) -> Schedule:
    width = ceil_power(facts.extents[c.d])
    height = facts.extents[c.i] if c.i is not None else 1
    ti = Split(regs=s.rows, threads=min(s.threads, ceil_power(-(-height // s.vector))), vector=min(s.vector, ceil_power(height)))
    td = Split(regs=max(1, width // (s.threads * s.vector)), threads=s.threads, vector=max(1, min(s.vector, width // s.threads)))
    tile = (*(((c.i, ti),) if c.i is not None and ti.tile > 1 else ()), (c.d, td))
    folds = []
    for a in facts.axes.folded:
        if a.name == c.j:
            folds.append((a.name, Split(steps=0, regs=s.keys, threads=s.threads, vector=s.vector)))
        elif s.inner == 0:
            folds.append((a.name, Split(regs=a.extent)))
        else:
            folds.append((a.name, Split(steps=0, regs=min(s.inner, ceil_power(a.extent)))))
    raster = "late" if causal(facts, c) else "row"
    return Schedule(max(32, ti.threads * td.threads), tile, tuple(folds), Stage(1, "shared"), raster)
