"""Prints a kernel as CUDA C++ that NVRTC compiles without any header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emmy_eq import index
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.cuda import ptx
from emmy_eq.codegen.cuda import vector as vectors
from emmy_eq.codegen.cuda.prelude import functions_used
from emmy_eq.codegen.cuda.text import I32, I64, TYPES, atom, bounds, cast, constant, index_text, name, result_range
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.kernel_ir.show import literal
from emmy_eq.codegen.kernel_ir.verify import dynamic_shared, lacks, shared_layout
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import Target
from emmy_eq.index import Idx
from emmy_eq.ops import itemsize, ops


def entry_point(kernel: ir.Kernel) -> str:
    """The name of the ``__global__`` function."""
    return name(kernel.name)


def source(kernel: ir.Kernel, target: Target | None = None) -> str:
    """The text.  ``target``: `Unsupported` is raised if it lacks what the kernel needs."""
    missing = lacks(kernel, target) if target is not None else ()
    if missing:
        raise Unsupported(kernel.name, f"{target} has no {', '.join(missing)}")
    body = "\n".join(_Printer.of(kernel).kernel_lines()) + "\n"
    prelude = functions_used(body)
    return prelude + ("\n" if prelude else "") + body


@dataclass(slots=True)
class _Printer:
    kernel: ir.Kernel
    dtypes: dict[str, str]  # of registers
    ranges: dict[str, tuple[int, int]]  # of integer registers and loop variables
    temporaries: int = 0
    depth: int = 1
    lines: list[str] = field(default_factory=list)

    @staticmethod
    def of(kernel: ir.Kernel) -> _Printer:
        ranges = {"tid": (0, kernel.threads - 1)}
        ranges |= {n: (0, extent - 1) for n, extent in zip(("bx", "by", "bz"), kernel.grid, strict=True)}
        return _Printer(kernel, dict.fromkeys(ranges, "i32"), ranges)

    # text of parts

    def idx(self, x: Idx) -> str:
        return index_text(x, self.ranges)

    def offset(self, buffer: str, x: Idx) -> str:
        return name(buffer) if x == index.const(0) else f"{name(buffer)} + {self.idx(x)}"

    def element(self, buffer: str, x: Idx) -> str:
        return f"{name(buffer)}[{self.idx(x)}]"

    def test(self, where: ir.Predicate) -> str:
        parts = [self._condition(c) for c in where]
        return parts[0] if len(parts) == 1 else " && ".join(f"({p})" for p in parts) if parts else "true"

    def _condition(self, c: ir.Condition) -> str:
        if isinstance(c, ir.Elect):
            return "emmy_elect()"
        if isinstance(c, ir.AnyLane):
            return f"__any_sync(0xffffffffu, {name(c.register)})"
        if isinstance(c, ir.Test):
            return f"!{name(c.register)}" if c.negate else name(c.register)
        return f"{self.idx(c.left)} {c.op} {self.idx(c.right)}"

    def operand(self, a: ir.Atom) -> str:
        return atom(a)

    def dtype(self, a: ir.Atom) -> str:
        return self.dtypes[a] if isinstance(a, str) else a.dtype

    def size(self, array: str) -> int:
        return next(itemsize(a.dtype) for a in self.kernel.shared if a.name == array)

    def temporary(self) -> str:
        self.temporaries += 1
        return f"emmy_v{self.temporaries}"

    def operation(self, op: str, args: tuple[ir.Atom, ...], dtype: str) -> str:
        texts, given = [self.operand(a) for a in args], [self.dtype(a) for a in args]
        if op in _SPECIAL:
            return _SPECIAL[op](texts, given[0], dtype)
        row = ops()[op]
        template = row.cuda.get(given[-1], row.cuda.get("*"))
        if template is None:
            raise Unsupported(op, f"no CUDA text for {given[-1]}", self.kernel.name)
        return _bare(template.format(*texts))

    # lines

    def emit(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def kernel_lines(self) -> list[str]:
        k = self.kernel
        blocks = f", {k.min_blocks}" if k.min_blocks else ""
        params = [f"{'const ' if p.kind == 'input' else ''}{TYPES[p.dtype]}* __restrict__ {name(p.name)}" for p in k.params]
        params += [f"const __grid_constant__ emmy_tensor_map {name(m.name)}" for m in k.maps]
        head = [f'extern "C" __global__ void __launch_bounds__({k.threads}{blocks})', f"{entry_point(k)}({', '.join(params)}) {{"]
        self.builtins()
        self.shared()
        self.body(k.body, self.depth)
        return [*head, *self.lines, "}"]

    def builtins(self) -> None:
        used = {v for s in walk.statements(self.kernel.body) for v in _names(s)}
        used |= {"tid"} if any(isinstance(s, ir.Role) for s in walk.statements(self.kernel.body)) else set()
        for n, text in (("bx", "blockIdx.x"), ("by", "blockIdx.y"), ("bz", "blockIdx.z"), ("tid", "threadIdx.x")):
            if n in used:
                self.emit(f"const int {n} = {text};")

    def shared(self) -> None:
        k = self.kernel
        if not k.shared:
            return
        self.emit("extern __shared__ __align__(16) unsigned char emmy_dynamic[];")
        base = "emmy_dynamic"
        if slack := dynamic_shared(k) - shared_layout(k)[1]:
            base = "emmy_base"
            self.emit(f"unsigned char* const emmy_base = emmy_dynamic + (-emmy_smem(emmy_dynamic) & {slack - 1}u);")
        for a in k.shared:
            at = shared_layout(k)[0][a.name]
            self.emit(f"{TYPES[a.dtype]}* const {name(a.name)} = ({TYPES[a.dtype]}*)({base} + {at});")

    def body(self, body: tuple[ir.Stmt, ...], depth: int) -> None:
        """A scope: what it defines ends with it."""
        outer, dtypes, ranges = self.depth, dict(self.dtypes), dict(self.ranges)
        self.depth = depth
        for s in body:
            self.statement(s)
        self.depth, self.dtypes, self.ranges = outer, dtypes, ranges

    def statement(self, s: ir.Stmt) -> None:
        written = ptx.STATEMENTS.get(type(s))
        if written is not None:
            for line in written(self, s):
                self.emit(line)
        else:
            _STATEMENTS[type(s)](self, s)
        for register, dtype in walk.writes(s):
            self.dtypes[register] = dtype
            if dtype in ("i32", "i64"):
                self.ranges[register] = self._range(s, dtype)

    def _range(self, s: ir.Stmt, dtype: str) -> tuple[int, int]:
        widest = I32 if dtype == "i32" else I64
        if not isinstance(s, ir.Let):
            return widest
        if s.idx is not None:
            low, high = bounds(s.idx, self.ranges)
        else:
            low, high = result_range(s.op, [self._operand_range(a) for a in s.args], widest)
        return (low, high) if widest[0] <= low and high <= widest[1] else widest

    def _operand_range(self, a: ir.Atom) -> tuple[int, int]:
        """Of an integer operand; any other has none that matters."""
        if isinstance(a, str):
            return self.ranges.get(a, I64)
        value = literal(a)
        return (int(value), int(value)) if a.dtype in ("i32", "i64") else I64

    # statements

    def let(self, s: ir.Let) -> None:
        if s.idx is None:
            text = self.operation(s.op, s.args, s.dtype)
        else:
            wide = bounds(s.idx, self.ranges)
            text = self.idx(s.idx) if I32[0] <= wide[0] and wide[1] <= I32[1] else f"({TYPES[s.dtype]})({self.idx(s.idx)})"
        self.emit(f"const {TYPES[s.dtype]} {name(s.name)} = {text};")

    def declare(self, s: ir.Declare) -> None:
        self.emit(f"{TYPES[s.dtype]} {name(s.name)} = {self.operand(s.init)};")

    def set(self, s: ir.Set) -> None:
        self.emit(f"{name(s.name)} = {self.operation(s.op, s.args, s.dtype)};")

    def load(self, s: ir.Load) -> None:
        other = constant(s.other if s.other is not None else ir.Lit(s.dtype, 0))
        if len(s.names) == 1:
            value = self.element(s.buffer, s.offset)
            if s.cache:
                value = vectors.read(s.cache, vectors.scalar_pointer(s.dtype, self.offset(s.buffer, s.offset)))
            value = f"{self.test(s.where)} ? {value} : {other}" if s.where else value
            self.emit(f"const {TYPES[s.dtype]} {name(s.names[0])} = {value};")
            return
        vector = vectors.vector(s.dtype, len(s.names))
        held = self.temporary()
        value = vectors.read(s.cache, f"(const {vector.type}*)({self.offset(s.buffer, s.offset)})")
        if not s.where:
            self.emit(f"const {vector.type} {held} = {value};")
        else:
            padding = ", ".join(vector.members([other] * len(s.names)))
            self.emit(f"{vector.type} {held} = {{{padding}}};")
            self.emit(f"if ({self.test(s.where)}) {held} = {value};")
        parts = ", ".join(f"{name(n)} = {vector.part(held, i)}" for i, n in enumerate(s.names))
        self.emit(f"const {TYPES[s.dtype]} {parts};")

    def store(self, s: ir.Store) -> None:
        when = f"if ({self.test(s.where)}) " if s.where else ""
        values = [self.operand(v) for v in s.values]
        if len(values) == 1:
            self.emit(f"{when}{self.element(s.buffer, s.offset)} = {values[0]};")
            return
        vector = vectors.vector(s.dtype, len(values))
        text = f"{vector.type}{{{', '.join(vector.members(values))}}}"
        self.emit(f"{when}*(({vector.type}*)({self.offset(s.buffer, s.offset)})) = {text};")

    def shuffle(self, s: ir.Shuffle) -> None:
        call = f"__shfl_{s.mode}_sync" if s.mode != "idx" else "__shfl_sync"
        direct = s.dtype in ("f32", "f64", "i32", "i64")
        given = name(s.source) if direct else f"(int){name(s.source)}"
        text = f"{call}(0xffffffffu, {given}, {self.idx(s.lane)})"
        self.emit(f"const {TYPES[s.dtype]} {name(s.name)} = {text if direct else f'({TYPES[s.dtype]}){text}'};")

    def atomic(self, s: ir.Atomic) -> None:
        text = f"(int)atomicAdd((unsigned*)({self.offset(s.buffer, s.offset)}), (unsigned){self.operand(s.value)})"
        if not s.where:
            self.emit(f"const int {name(s.name)} = {text};")
            return
        self.emit(f"int {name(s.name)} = 0;")
        self.emit(f"if ({self.test(s.where)}) {name(s.name)} = {text};")

    def loop(self, s: ir.For) -> None:
        low, high = bounds(s.start, self.ranges)[0], bounds(s.stop, self.ranges)[1]
        wide = low < I32[0] or high + s.step > I32[1]
        self.emit("#pragma unroll" + (f" {s.unroll}" if s.unroll else ""))
        var = name(s.var)
        step = f"++{var}" if s.step == 1 else f"{var} += {s.step}"
        self.emit(f"for ({'long long' if wide else 'int'} {var} = {self.idx(s.start)}; {var} < {self.idx(s.stop)}; {step}) {{")
        self.ranges[s.var] = (low, max(low, high - 1))
        self.dtypes[s.var] = "i64" if wide else "i32"
        self.body(s.body, self.depth + 1)
        self.emit("}")

    def branch(self, s: ir.If) -> None:
        self.emit(f"if ({self.test(s.where)}) {{")
        self.body(s.body, self.depth + 1)
        if s.orelse:
            self.emit("} else {")
            self.body(s.orelse, self.depth + 1)
        self.emit("}")

    def role(self, s: ir.Role) -> None:
        for i, ((first, count), body) in enumerate(zip(s.warps, s.bodies, strict=True)):
            low, high = 32 * first, 32 * (first + count)
            tests = ([f"tid >= {low}"] if low else []) + ([f"tid < {high}"] if high < self.kernel.threads else [])
            self.emit(f"{'if' if i == 0 else '} else if'} ({' && '.join(tests) or 'true'}) {{")
            self.body(body, self.depth + 1)
        self.emit("}")


def _bare(text: str) -> str:
    """Without parentheses around the whole of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text


def _names(s: ir.Stmt) -> frozenset[str]:
    """Variables in the indices and predicate of a statement."""
    return frozenset(walk.predicate_names(walk.predicate(s))).union(*(index.variables(x) for x in walk.indices(s)))


def _bitcast(x: str, source: str, to: str) -> str:
    call = {
        ("f32", "i32"): "__float_as_int",
        ("i32", "f32"): "__int_as_float",
        ("f64", "i64"): "__double_as_longlong",
        ("i64", "f64"): "__longlong_as_double",
    }.get((source, to))
    return f"{call}({x})" if call else f"({TYPES[to]}){x}"


# The operations of Kernel IR that are no rows of the op table: text of (operands, dtype of the first, dtype of the result).
_SPECIAL: Mapping[str, Callable[[list[str], str, str], str]] = {
    "mov": lambda x, source, to: x[0],
    "cast": lambda x, source, to: cast(x[0], source, to),
    "bitcast": lambda x, source, to: _bitcast(x[0], source, to),
    "pack": lambda x, source, to: f"(int)((unsigned)(unsigned short){x[0]} | (unsigned){x[1]} << 16)",
    "exp2_approx": lambda x, source, to: f"emmy_exp2_approx({x[0]})",
    "pack_f16": lambda x, source, to: f"emmy_pack_f16({x[0]}, {x[1]})",
    "pack_bf16": lambda x, source, to: f"emmy_pack_bf16({x[0]}, {x[1]})",
}

_STATEMENTS: Mapping[type, Callable[[_Printer, Any], None]] = {
    ir.Let: _Printer.let,
    ir.Declare: _Printer.declare,
    ir.Set: _Printer.set,
    ir.Load: _Printer.load,
    ir.Store: _Printer.store,
    ir.Shuffle: _Printer.shuffle,
    ir.Atomic: _Printer.atomic,
    ir.For: _Printer.loop,
    ir.If: _Printer.branch,
    ir.Role: _Printer.role,
    ir.Return: lambda p, s: p.emit("return;"),
    ir.WarpSync: lambda p, s: p.emit("__syncwarp();"),
    ir.Fence: lambda p, s: p.emit("__threadfence();"),
}
