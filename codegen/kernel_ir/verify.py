"""The rules that every kernel keeps; what depends on values (races, bounds, divergence at run time) the simulator finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from emmy_eq import index
from emmy_eq.codegen.kernel_ir import grammar as ir
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.kernel_ir.show import show_atom, show_statement
from emmy_eq.errors import VerifyError
from emmy_eq.extract.targets import Target
from emmy_eq.ops import COMPUTE, DTYPES, itemsize, ops

SHARED_LIMIT = 232_448  # bytes of dynamic shared memory a block may ask for on sm_90 (CUDA C++ Programming Guide)
SHARED_ALIGN = 16  # bytes that dynamic shared memory is sure to be aligned to
_HALVES = ("f16", "bf16", "i16")
_MMA_K = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8)}


def shared_layout(kernel: ir.Kernel) -> tuple[dict[str, int], int]:
    """Byte offset of each shared array, in order of declaration, and the total size."""
    offsets: dict[str, int] = {}
    end = 0
    for a in kernel.shared:
        offsets[a.name] = -(-end // a.align) * a.align
        end = offsets[a.name] + a.size * (8 if a.dtype == "mbar" else itemsize(a.dtype))
    return offsets, end


def dynamic_shared(kernel: ir.Kernel) -> int:
    """Bytes of shared memory that a launch must ask for: where arrays are aligned to more than it is sure to be, that is done by hand."""
    align = max((a.align for a in kernel.shared), default=0)
    return shared_layout(kernel)[1] + (align if align > SHARED_ALIGN else 0)


def lacks(kernel: ir.Kernel, target: Target) -> tuple[str, ...]:
    """What the kernel needs and the target does not have."""
    return tuple(sorted(need for need in walk.needs(kernel) if not getattr(target, need)))


def divergent_names(kernel: ir.Kernel) -> frozenset[str]:
    """Names whose value may differ between the threads of a block (a safe enclosure, by fixed point over all statements)."""
    found = {"tid"}
    before = 0
    while len(found) != before:
        before = len(found)
        _spread(kernel.body, False, found)
    return frozenset(found)


def _spread(body: tuple[ir.Stmt, ...], inside: bool, found: set[str]) -> None:
    for s in body:
        sources = {a for a in walk.operands(s) if isinstance(a, str)} | set(walk.predicate_names(walk.predicate(s)))
        sources = sources.union(*(index.variables(i) for i in walk.indices(s)))
        varies = inside or bool(sources & found) or isinstance(s, ir.Role | ir.Shuffle | ir.Atomic | ir.Ldmatrix | ir.Mma | ir.Wgmma)
        if varies:
            found.update(name for name, _ in walk.writes(s))
            found.update({s.name} if isinstance(s, ir.Set) else {s.var} if isinstance(s, ir.For) else ())
            found.update(s.d if isinstance(s, ir.Mma | ir.Wgmma) else ())
        for inner in walk.bodies(s):
            _spread(inner, varies, found)


def verify(kernel: ir.Kernel, target: Target | None = None) -> None:
    """Raise `VerifyError` at the first statement that breaks a rule; with a ``target``, also if that cannot run the kernel."""
    checker = _Checker(kernel, divergent_names(kernel), target)
    checker.header()
    checker.body(kernel.body, dict.fromkeys(walk.BUILTIN, "i32"), uniform=True)


@dataclass(slots=True)
class _Checker:
    kernel: ir.Kernel
    divergent: frozenset[str]
    target: Target | None
    where: str = "header"
    mutable: set[str] = field(default_factory=set)

    def require(self, holds: bool, why: str) -> None:
        if not holds:
            raise VerifyError("Kernel", f"{self.kernel.name}: {self.where}", why)

    def header(self) -> None:
        k = self.kernel
        self.require(k.threads % 32 == 0 and 0 < k.threads <= 1024, f"{k.threads} threads: not a multiple of 32 up to 1024")
        self.require(min(k.grid) > 0 and k.grid[0] < 2**31 and max(k.grid[1:]) < 2**16, f"grid {k.grid} is out of range")
        names = [x.name for group in (k.params, k.shared, k.maps) for x in group]
        self.require(len(set(names)) == len(names) and not set(names) & walk.BUILTIN, "two parameters or arrays of one name")
        for p in k.params:
            self.require(p.dtype in DTYPES and p.size >= 0, f"parameter {p.name}: {p.dtype}[{p.size}]")
            self.require(p.kind in ("input", "output", "scratch", "zeroed"), f"parameter {p.name}: kind {p.kind}")
        for a in k.shared:
            self.require((a.dtype in DTYPES or a.dtype == "mbar") and a.size > 0, f"shared {a.name}: {a.dtype}[{a.size}]")
            self.require(a.align >= 8 and a.align & (a.align - 1) == 0, f"shared {a.name}: alignment {a.align}")
        size = dynamic_shared(k)
        limit = self.target.shared_per_block if self.target is not None else SHARED_LIMIT
        self.require(size <= limit, f"{size} bytes of shared memory; at most {limit}")
        for m in k.maps:
            self.tensor_map(m)
        missing = lacks(k, self.target) if self.target is not None else ()
        self.require(not missing, f"needs {', '.join(missing)}, which {self.target} lacks")

    def tensor_map(self, m: ir.TensorMap) -> None:
        """The rules of cuTensorMapEncodeTiled (CUDA driver API)."""
        self.where = f"map {m.name}"
        size = itemsize(m.dtype)
        self.require(any(p.name == m.buffer and p.dtype == m.dtype for p in self.kernel.params), f"no parameter {m.buffer} of {m.dtype}")
        self.require(len(m.shape) == len(m.strides) == len(m.box) <= 5, "ranks differ")
        self.require(m.strides[0] == 1, "innermost stride is not 1")
        self.require(all(s * size % 16 == 0 for s in (m.start, *m.strides[1:])), "start and strides must be multiples of 16 bytes")
        self.require(all(0 < b <= 256 for b in m.box) and m.box[0] * size % 16 == 0, f"box {m.box}")
        self.require(m.swizzle in (0, 32, 64, 128), f"swizzle {m.swizzle}")
        self.require(m.swizzle == 0 or m.box[0] * size <= m.swizzle, f"inner extent of box is over {m.swizzle} bytes")
        self.where = "header"

    def body(self, body: tuple[ir.Stmt, ...], scope: dict[str, str], uniform: bool) -> None:
        for s in body:
            self.where = show_statement(s)
            self.statement(s, scope, uniform)
            for name, dtype in walk.writes(s):
                self.require(name not in scope, f"register {name} is assigned twice")
                self.require(name.isidentifier() and dtype in DTYPES, f"register {name}: {dtype}")
                scope[name] = dtype
            if isinstance(s, ir.Declare):
                self.mutable.add(s.name)
            self.inner(s, scope, uniform)

    def inner(self, s: ir.Stmt, scope: dict[str, str], uniform: bool) -> None:
        if isinstance(s, ir.For):
            self.require(s.var not in scope and s.var.isidentifier(), f"loop variable {s.var} is taken")
            self.require(s.step > 0 and s.unroll >= 0, "step must be positive")
            scope = {**scope, s.var: "i64"}
        names = set(walk.predicate_names(walk.predicate(s))).union(*(index.variables(i) for i in walk.indices(s)))
        elected = isinstance(s, ir.If) and any(isinstance(c, ir.Elect) for c in s.where)
        uniform = uniform and not elected and not names & self.divergent and not isinstance(s, ir.Role)
        for inner in walk.bodies(s):
            self.body(inner, dict(scope), uniform)

    def statement(self, s: ir.Stmt, scope: dict[str, str], uniform: bool) -> None:
        for name in self.used(s):
            self.require(name in scope, f"{name} is not defined here")
        for idx in (*walk.indices(s), *(i for c in walk.predicate(s) if isinstance(c, ir.Cmp) for i in (c.left, c.right))):
            for name in index.variables(idx):
                self.require(scope[name] in ("i32", "i64"), f"{name} of {scope[name]} in an index")
        for c in walk.predicate(s):
            if isinstance(c, ir.Test | ir.AnyLane):
                self.require(scope[c.register] == "bool", f"predicate {c.register} is no bool")
        check = _CHECKS.get(type(s))
        if check is not None:
            check(self, s, scope)
        if isinstance(s, ir.Barrier) and s.threads is None:
            self.require(uniform, "barrier of the whole block in divergent control flow")
        if isinstance(s, ir.Return):
            self.require(uniform, "not uniform over the block")

    def used(self, s: ir.Stmt) -> Iterable[str]:
        yield from (a for a in walk.operands(s) if isinstance(a, str))
        yield from walk.predicate_names(walk.predicate(s))
        yield from (v for i in walk.indices(s) for v in sorted(index.variables(i)))

    def dtype(self, a: ir.Atom, scope: dict[str, str]) -> str:
        return scope[a] if isinstance(a, str) else a.dtype

    def operation(self, op: str, args: tuple[ir.Atom, ...], dtype: str, scope: dict[str, str]) -> None:
        given = [self.dtype(a, scope) for a in args]
        if op in _SPECIAL:
            self.require(_SPECIAL[op](given, dtype), f"{op} of {', '.join(given)} gives no {dtype}")
            return
        row = ops().get(op)
        self.require(row is not None, f"no operation {op}")
        assert row is not None
        self.require(len(args) == row.arity, f"{op} takes {row.arity} arguments")
        values = given[1:] if op == "where" else given
        self.require(op != "where" or given[0] == "bool", "the condition is no bool")
        self.require(len(set(values)) == 1, f"{op} of mixed dtypes {', '.join(given)}")
        self.require(op == "where" or values[0] in COMPUTE, f"{op} is not done in {values[0]}")
        result = row.gives(values[-1])
        self.require(dtype == result, f"{op} gives {result}, not {dtype}")

    def let(self, s: ir.Let, scope: dict[str, str]) -> None:
        if s.op != "index":
            self.require(s.idx is None, "an index expression only belongs to `index`")
            self.operation(s.op, s.args, s.dtype, scope)
            return
        self.require(s.idx is not None and not s.args and s.dtype in ("i32", "i64"), "index takes one expression and gives an integer")

    def declare(self, s: ir.Declare, scope: dict[str, str]) -> None:
        self.require(self.dtype(s.init, scope) == s.dtype, f"initial value {show_atom(s.init)} is no {s.dtype}")

    def set(self, s: ir.Set, scope: dict[str, str]) -> None:
        self.require(s.name in scope and s.name in self.mutable, f"{s.name} is not a declared mutable register")
        self.require(scope[s.name] == s.dtype, f"{s.name} holds {scope[s.name]}")
        self.operation(s.op, s.args, s.dtype, scope)

    def memory(self, space: str, buffer: str, dtype: str, stores: bool) -> None:
        self.require(space in ("global", "shared"), f"space {space}")
        if space == "shared":
            self.require(any(a.name == buffer and a.dtype == dtype for a in self.kernel.shared), f"no shared array {buffer} of {dtype}")
            return
        found = [p for p in self.kernel.params if p.name == buffer and p.dtype == dtype]
        self.require(bool(found), f"no parameter {buffer} of {dtype}")
        self.require(not stores or found[0].kind != "input", f"{buffer} is an input")

    def vector(self, width: int, dtype: str, offset: index.Idx) -> None:
        self.require(width in (1, 2, 4, 8) and width * itemsize(dtype) <= 16, f"a vector of {width} x {dtype}")
        parts = dict(index.terms(offset))
        fixed = parts.pop(index.const(1), 0)
        known = all(c % width == 0 for c in parts.values())
        self.require(not known or fixed % width == 0, f"offset {offset} is not a multiple of {width}")

    def load(self, s: ir.Load, scope: dict[str, str]) -> None:
        self.memory(s.space, s.buffer, s.dtype, stores=False)
        self.vector(len(s.names), s.dtype, s.offset)
        self.require(s.other is None or s.other.dtype == s.dtype, "`other` has another dtype")
        self.require(s.cache in ("", "cg"), f"cache {s.cache}")

    def store(self, s: ir.Store, scope: dict[str, str]) -> None:
        self.memory(s.space, s.buffer, s.dtype, stores=True)
        self.vector(len(s.values), s.dtype, s.offset)
        for value in s.values:
            self.require(self.dtype(value, scope) == s.dtype, f"{show_atom(value)} is no {s.dtype}")

    def shuffle(self, s: ir.Shuffle, scope: dict[str, str]) -> None:
        self.require(s.mode in ("xor", "up", "down", "idx"), f"mode {s.mode}")
        self.require(s.mode == "idx" or s.lane.op == "const", "the distance must be a constant")
        self.require(scope[s.source] == s.dtype, f"{s.source} is no {s.dtype}")

    def atomic(self, s: ir.Atomic, scope: dict[str, str]) -> None:
        self.memory(s.space, s.buffer, "i32", stores=True)
        self.require(self.dtype(s.value, scope) == "i32", f"{show_atom(s.value)} is no i32")

    def role(self, s: ir.Role, scope: dict[str, str]) -> None:
        self.require(len(s.warps) == len(s.bodies), "one warp range a body")
        taken = [w for first, count in s.warps for w in range(first, first + count)]
        exist = all(0 <= w < self.kernel.threads // 32 for w in taken)
        self.require(exist and len(set(taken)) == len(taken), "warp ranges overlap or do not exist")

    def barrier(self, s: ir.Barrier, scope: dict[str, str]) -> None:
        self.require(0 <= s.id < 16, f"barrier {s.id}: there are 16")
        self.require(s.threads is not None or s.wait, "an arrival names its number of threads")
        threads = s.threads if s.threads is not None else self.kernel.threads
        self.require(threads % 32 == 0 and 0 < threads <= self.kernel.threads, f"{threads} threads at a barrier")

    def registers(self, s: ir.SetMaxRegs, scope: dict[str, str]) -> None:
        self.require(24 <= s.registers <= 256 and s.registers % 8 == 0, f"{s.registers} registers: not a multiple of 8 from 24 to 256")

    def cp_async(self, s: ir.CpAsync, scope: dict[str, str]) -> None:
        self.memory("shared", s.shared, s.dtype, stores=True)
        self.memory("global", s.buffer, s.dtype, stores=False)
        self.require(s.count * itemsize(s.dtype) in (4, 8, 16), f"{s.count * itemsize(s.dtype)} bytes; 4, 8 or 16 can be copied")
        for offset in (s.to, s.offset):
            self.vector(s.count, s.dtype, offset)

    def mbarrier(self, s: ir.MbarInit | ir.MbarExpect | ir.MbarArrive | ir.MbarWait | ir.TmaLoad, scope: dict[str, str]) -> None:
        self.require(any(a.name == s.array and a.dtype == "mbar" for a in self.kernel.shared), f"no mbarrier array {s.array}")
        if isinstance(s, ir.TmaLoad):
            self.tma(s, scope)

    def tma(self, s: ir.TmaLoad | ir.TmaStore, scope: dict[str, str]) -> None:
        found = [m for m in self.kernel.maps if m.name == s.map]
        self.require(bool(found) and len(found[0].shape) == len(s.coordinates), f"no map {s.map} of rank {len(s.coordinates)}")
        self.memory("shared", s.shared, found[0].dtype, stores=True)
        if isinstance(s, ir.TmaStore):
            self.memory("global", found[0].buffer, found[0].dtype, stores=True)

    def matrix(self, s: ir.Ldmatrix | ir.Stmatrix, scope: dict[str, str]) -> None:
        registers = s.names if isinstance(s, ir.Ldmatrix) else s.values
        self.require(len(registers) in (1, 2, 4), f"{len(registers)} matrices")
        self.require(any(a.name == s.shared and a.dtype in DTYPES for a in self.kernel.shared), f"no shared array {s.shared}")
        if isinstance(s, ir.Stmatrix):
            self.require(all(scope[v] == "i32" for v in s.values), "stores pairs in i32 registers")

    def accumulators(self, d: tuple[str, ...], count: int, scope: dict[str, str]) -> None:
        self.require(len(d) == len(set(d)) == count, f"{count} accumulators wanted")
        self.require(all(scope[r] == "f32" and r in self.mutable for r in d), "accumulators are mutable f32 registers")

    def fragments(self, registers: tuple[str, ...], count: int, dtype: str, scope: dict[str, str]) -> None:
        allowed = ("i32", "f32") if dtype == "tf32" else ("i32",)
        fits = len(registers) == count and all(scope[r] in allowed for r in registers)
        self.require(fits, f"{count} operand registers of {dtype} wanted")

    def mma(self, s: ir.Mma, scope: dict[str, str]) -> None:
        m, n, k = s.shape
        self.require((m, n) == (16, 8) and k in _MMA_K.get(s.dtype, ()), f"no mma m{m}n{n}k{k} of {s.dtype}")
        pairs = 32 * (1 if s.dtype == "tf32" else 2)
        self.accumulators(s.d, 4, scope)
        self.fragments(s.a, m * k // pairs, s.dtype, scope)
        self.fragments(s.b, n * k // pairs, s.dtype, scope)

    def wgmma(self, s: ir.Wgmma, scope: dict[str, str]) -> None:
        self.require(s.n % 8 == 0 and 8 <= s.n <= 256 and s.dtype in _MMA_K, f"no wgmma n{s.n} of {s.dtype}")
        self.accumulators(s.d, s.n // 2, scope)
        self.require(self.dtype(s.scale_d, scope) in ("i32", "bool"), "scale_d is an i32 or a bool")
        self.require(s.dtype != "tf32" or not (s.transpose_a or s.transpose_b), "tf32 operands cannot be transposed")
        element = "f32" if s.dtype == "tf32" else s.dtype
        self.memory("shared", s.b[0], element, stores=False)
        if walk.fragment(s):
            self.fragments(walk.fragment(s), 4, s.dtype, scope)
        else:
            self.memory("shared", str(s.a[0]), element, stores=False)


_SPECIAL: dict[str, Callable[[list[str], str], bool]] = {
    "mov": lambda given, dtype: given == [dtype],
    "cast": lambda given, dtype: len(given) == 1,
    "bitcast": lambda given, dtype: len(given) == 1 and "bool" not in (given[0], dtype) and itemsize(given[0]) == itemsize(dtype),
    "pack": lambda given, dtype: len(given) == 2 and given[0] == given[1] and given[0] in _HALVES and dtype == "i32",
    "exp2_approx": lambda given, dtype: given == ["f32"] and dtype == "f32",
    "pack_f16": lambda given, dtype: given == ["f32", "f32"] and dtype == "i32",
    "pack_bf16": lambda given, dtype: given == ["f32", "f32"] and dtype == "i32",
}

_CHECKS: dict[type, Callable[[_Checker, Any, dict[str, str]], None]] = {
    ir.Let: _Checker.let, ir.Declare: _Checker.declare, ir.Set: _Checker.set, ir.Load: _Checker.load, ir.Store: _Checker.store,
    ir.Shuffle: _Checker.shuffle, ir.Atomic: _Checker.atomic, ir.Role: _Checker.role, ir.Barrier: _Checker.barrier,
    ir.SetMaxRegs: _Checker.registers,
    ir.CpAsync: _Checker.cp_async, ir.MbarInit: _Checker.mbarrier, ir.MbarExpect: _Checker.mbarrier,
    ir.MbarArrive: _Checker.mbarrier, ir.MbarWait: _Checker.mbarrier, ir.TmaLoad: _Checker.mbarrier, ir.TmaStore: _Checker.tma,
    ir.Ldmatrix: _Checker.matrix, ir.Stmatrix: _Checker.matrix, ir.Mma: _Checker.mma, ir.Wgmma: _Checker.wgmma,
}  # fmt: skip
