"""What a kernel does, read off its Loop IR: operations, reads and products of each fold, as functions of the axes they vary along.

Axes are bits of a mask.  How often a value is computed depends on the schedule, so that is left to `emmy_eq.extract.cost`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from emmy_eq import index as ix
from emmy_eq.loop_ir import Axis, Carry, Fold, Kernel, Let, Load, Loop, Stmt, Store
from emmy_eq.ops import exact, itemsize, monoids, ops, twists

COMPARISONS = ("ge", "gt", "le", "lt")


@dataclass(frozen=True, slots=True)
class Read:
    """``bytes`` are distinct; ``again``: an earlier fold reads the same; ``last``: the axes along which neighbours are adjacent."""

    bytes: int
    size: int  # of an element
    axes: int
    last: int
    again: bool


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products of two values, each of which lacks an axis of the other around the fold.

    ``dtype``: of both operands before their casts to f32; ``loaded``: warpgroups can take both (16-bit tensors as they lie in memory, f32
    ones of which one lies along the fold, and the other may be computed); ``skipped``: the share of the points that a causal mask empties.
    """

    left: int  # axes of the operands
    right: int
    dtype: str
    loaded: bool
    twisted: bool
    skipped: float
    across: bool = False  # of f32: an operand does not lie along the fold

    @property
    def axes(self) -> int:
        return self.left | self.right


@dataclass(slots=True)
class Pass:
    """A fold, or an inner loop after one.  ``around``: folds outside of it, outermost first, by their axes; ``ops``: issue slots a point,
    by unit and axes that the operation varies along; ``carries``: how many, products among them; ``joined``: values that threads which
    share the fold put together, and ``joins``: special functions that each time takes."""

    bound: int
    around: tuple[int, ...] = ()
    ops: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))
    reads: list[Read] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    carries: int = 0
    joined: int = 0
    joins: float = 0.0


class Work:
    """Of ``kernel``.  ``parallel``: the axes of its outermost loops; ``passes``: folds and inner loops; ``outside``: the rest."""

    def __init__(self, kernel: Kernel) -> None:
        self.bits: dict[str, int] = {}
        self.extents: list[int] = []
        self.axes: dict[str, int] = {}  # that each value varies along
        self.dtypes: dict[str, str] = {}
        self.lets: dict[str, Let] = {}
        self.loads: dict[str, int] = {}  # the axes along which neighbours are adjacent
        self.plain: set[str] = set()  # what no fold makes, of loads that the copy engine can do
        self.flops: dict[str, int] = defaultdict(int)
        self.absorbed: set[str] = set()
        self.sizes = {b.name: _size(b.shape) * itemsize(b.dtype) for b in (*kernel.inputs, *kernel.outputs)}
        self.read: dict[str, dict[tuple[ix.Idx, ...], int]] = defaultdict(dict)  # distinct loads: bytes
        self.shapes = {b.name: b.shape for b in (*kernel.inputs, *kernel.outputs)}
        self.stored = sum(self.sizes[b.name] for b in kernel.outputs)
        self.parallel = 0
        self.inner = 0  # axes of inner loops
        self.columns = 0  # axes along which results are adjacent
        self.scans = False
        self.outside = Pass(0)
        self.passes: list[Pass] = []
        self.block(kernel.body, self.outside, 0)

    @property
    def distinct(self) -> int:
        """Bytes that are read at least once."""
        return sum(min(sum(loads.values()), self.sizes[buffer]) for buffer, loads in self.read.items())

    def points(self, mask: int) -> int:
        n = 1
        while mask:
            low = mask & -mask
            n *= self.extents[low.bit_length() - 1]
            mask ^= low
        return n

    def sides(self, p: Product) -> tuple[int, int]:
        """Points of the parallel axes that only one operand has."""
        return self.points(p.left & ~p.right & self.parallel), self.points(p.right & ~p.left & self.parallel)

    def split(self, mask: int) -> list[int]:
        """The axes of ``mask``, one bit each, outermost first."""
        return [1 << n for n in range(len(self.extents)) if mask >> n & 1]

    def bind(self, axes: Sequence[Axis]) -> int:
        mask = 0
        for a in axes:
            if a.name not in self.bits:
                self.bits[a.name] = 1 << len(self.extents)
                self.extents.append(max(1, a.extent))  # a kernel without points still has a cost
            mask |= self.bits[a.name]
        return mask

    def mask(self, idxs: Sequence[ix.Idx]) -> int:
        mask = 0
        for x in idxs:
            for name in ix.variables(x):
                mask |= self.bits.get(name, 0)
        return mask

    def block(self, body: Sequence[Stmt], at: Pass, loops: int) -> None:
        """``loops``: how many are around."""
        for stmt in body:
            if isinstance(stmt, Loop):
                bound = self.bind(stmt.axes)
                if not self.passes and not loops:
                    self.parallel |= bound
                    self.block(stmt.body, at, loops + 1)
                else:
                    self.inner |= bound
                    self.passes.append(Pass(bound, at.around))
                    self.block(stmt.body, self.passes[-1], loops + 1)
            elif isinstance(stmt, Fold):
                self.fold(stmt, at)
            elif isinstance(stmt, Load):
                at.reads.append(self.load(stmt))
            elif isinstance(stmt, Let):
                self.let(stmt)
            elif isinstance(stmt, Store):
                self.columns = self.last(stmt.buffer, stmt.index)
        for stmt in body:
            if isinstance(stmt, Let) and stmt.op != "lit" and stmt.name not in self.absorbed:
                self.count(stmt.op, stmt.dtype, self.axes[stmt.name], at)

    def let(self, stmt: Let) -> None:
        self.lets[stmt.name] = stmt
        self.dtypes[stmt.name] = stmt.dtype
        axes = self.mask((stmt.attr,)) if stmt.op == "iota" else 0
        for a in stmt.args:
            axes |= self.axes[a]
        self.axes[stmt.name] = axes
        self.plain |= {stmt.name} if self.plain.issuperset(stmt.args) else set()

    def count(self, op: str, dtype: str, axes: int, at: Pass, times: float = 1.0) -> None:
        """``times`` operations ``op`` for each point of ``axes``."""
        row = ops().get(op)
        unit: str = row.unit if row is not None else "alu"
        slots, flops = (row.cost, row.flops) if row is not None else (1.0, 0)
        if dtype == "f64" and unit == "fma":
            unit = "fma_f64"
        at.ops[unit, axes] += slots * times
        if flops and unit != "alu":
            self.flops[unit] += round(flops * times * self.points(axes))

    def load(self, stmt: Load) -> Read:
        axes = self.mask(stmt.index)
        for a in stmt.indices:
            axes |= self.axes[a]
        self.axes[stmt.name] = axes
        self.dtypes[stmt.name] = stmt.dtype
        if not stmt.indices and all(part.op in ("var", "const") for x in stmt.index for part, _ in ix.terms(x)):
            self.plain.add(stmt.name)
        last = self.loads[stmt.name] = self.last(stmt.buffer, stmt.index)
        size = itemsize(stmt.dtype)
        bytes_ = min(self.points(axes) * size, self.sizes[stmt.buffer])
        known = self.read[stmt.buffer]
        again = stmt.index in known
        known[stmt.index] = bytes_
        return Read(bytes_, size, axes, last, again)

    def last(self, buffer: str, index: Sequence[ix.Idx]) -> int:
        """The axes along which neighbours are adjacent."""
        long = [x for x, extent in zip(index, self.shapes[buffer], strict=True) if extent > 1]
        return self.mask(long[-1:])

    def fold(self, stmt: Fold, outer: Pass) -> None:
        bound = self.bind(stmt.axes)
        at = Pass(bound, (*outer.around, *((outer.bound,) if outer.bound else ())))
        self.scans |= bool(stmt.observer)
        place = len(self.passes)
        self.passes.append(at)
        # Statements of the body are counted after its carries are known, which take multiplications into products.
        for s in stmt.body:
            if isinstance(s, Fold):
                self.fold(s, at)
            elif isinstance(s, Load):
                at.reads.append(self.load(s))
            elif isinstance(s, Let):
                self.let(s)
        around = self.parallel | sum(at.around)
        at.carries = len(stmt.carries)
        for carry in stmt.carries:
            axes = bound
            for a in carry.args:
                axes |= self.axes[a]
            self.axes.update(dict.fromkeys(carry.results, axes if stmt.observer else axes & ~bound))
            self.dtypes.update(zip(carry.results, carry.dtypes, strict=True))
            at.joined += len(carry.results)
            self.carry(carry, bound, around, at)
        for s in stmt.body:
            if isinstance(s, Let) and s.op != "lit" and s.name not in self.absorbed:
                self.count(s.op, s.dtype, self.axes[s.name], at)
        if stmt.observer:
            self.block(stmt.observer, at, 1)
        assert self.passes[place] is at

    def carry(self, carry: Carry, bound: int, around: int, at: Pass) -> None:
        if carry.kind == "twist":
            self.twist(carry, bound, around, at)
            return
        (arg,) = carry.args
        let = self.lets.get(arg)
        op = monoids()[carry.name].combine if carry.kind == "monoid" else "maximum"
        product = op == "add" and let is not None and let.op == "mul"
        if product and let is not None and self.product(let.args, bound, around, at, serial=carry.name != "sum"):
            self.absorbed.add(arg)  # the multiplication is part of the product
            return
        self.count(op, carry.dtypes[0], self.axes[arg] | bound, at)

    def twist(self, carry: Carry, bound: int, around: int, at: Pass) -> None:
        key, *sums = carry.args
        scores = self.axes[key] | bound
        row = twists()[carry.name]
        self.count(monoids()[row.key].combine, carry.dtypes[0], scores, at)
        self.count("sub", carry.dtypes[0], scores, at)
        weight = "exp" if exact(carry.name) == carry.name else "fast_exp"
        self.count(weight, carry.dtypes[0], scores, at, 2)  # and the rescaling of what was summed so far
        at.joins += 2 * ops()[weight].cost
        for v in sums:
            if not self.product((key, v), bound, around, at, self.emptied(key, bound)):
                self.count("fma", carry.dtypes[0], scores | self.axes[v], at, 2)

    def product(
        self, operands: Sequence[str], bound: int, around: int, at: Pass, skipped: float | None = None, serial: bool = False
    ) -> bool:
        """Note a sum of products; False where it is none: an operand must be shared along an axis that the other varies along."""
        left, right = (self.axes[x] for x in operands)
        if not (left & ~right & around and right & ~left & around):
            return False
        twisted = skipped is not None
        # Weights of a twist are rounded as the values are that they multiply.
        dtype = self.dtypes[operands[1]] if twisted else self.operand_type(operands)
        if serial:
            dtype = "f32 in order"  # which tensor cores have no say in
        if dtype == "f32":
            along = [bool(self.loads.get(x, 0) & bound) for x in operands]
            loaded, across = self.plain.issuperset(operands) and any(along), not all(along)
        else:
            loaded, across = all(self.stem(x) in self.loads for x in operands[twisted:]), False  # weights are in registers
        if dtype in ("f16", "bf16"):
            self.absorbed |= {x for x in operands if x in self.lets and self.lets[x].op == "cast"}  # tensor cores take what was cast
        at.products.append(Product(left | bound, right | bound, dtype, loaded, twisted, skipped or 0.0, across))
        return True

    def emptied(self, key: str, bound: int) -> float:
        """The share of a fold's points that a causal mask of its key empties, where it compares positions along both."""
        let = self.lets.get(key)
        if let is None or let.op != "where" or let.args[0] not in self.lets:
            return 0.0
        condition = self.lets[let.args[0]]
        axes = self.axes[condition.name]
        return 0.5 if condition.op in COMPARISONS and axes & bound and axes & ~bound else 0.0

    def operand_type(self, names: Sequence[str]) -> str:
        """The type that both operands have before their casts to f32."""
        types = {self.source_type(n) for n in names}
        return types.pop() if len(types) == 1 else "f32"

    def source_type(self, name: str) -> str:
        return self.dtypes[self.stem(name)]

    def stem(self, name: str) -> str:
        """The value that ``name`` is a cast of."""
        let = self.lets.get(name)
        return let.args[0] if let is not None and let.op == "cast" else name


def _size(shape: Sequence[int]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n
