"""Loop IR as text, and back: ``parse(show(x)) == x``.

    v0 = load x[i0, i1 + 3]              v4 = sub v2, v1            carry v1 = max(v0)
    v0 = load x[g0, i1] with v7, ...     v5 = cast f16 v4           carry v1 = argmax(v0)
    store out[i0] = v9                   v6 = lit f32 0.5           carry v1, v2, v3 = twist softmax(v0, v7, v8)
                                         v7 = iota i0*4 + i1

``with`` gives the values that the index calls g0, g1, ....  The block of a scan's observer follows the fold's under ``observe:``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import overload

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.loop_ir.grammar import Axis, Buffer, Carry, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store
from emmy_eq.ops import DTYPES, ops, twists
from emmy_eq.terms import from_bits, read_bits
from emmy_eq.text import items


def show(x: Program | Kernel) -> str:
    """Text of a kernel, or of a program: its inputs, temporaries, kernels and results."""
    if isinstance(x, Kernel):
        head = f"kernel {x.name}({_buffers(x.inputs)}) -> {_buffers(x.outputs)}:"
        return "\n".join([head, *_block(x.body, "  ")]) + "\n"
    lines = [f"inputs {_buffers(x.inputs)}".rstrip()]
    if x.temps:
        lines.append(f"temps {_buffers(x.temps)}")
    results = (_buffer(Buffer(name, shape, dtype)) + (f" alias {alias}" if alias else "") for name, shape, dtype, alias in x.outputs)
    return "\n".join([*lines, "", *(show(k) for k in x.kernels), "return " + ", ".join(results)]) + "\n"


def _buffer(b: Buffer) -> str:
    return f"{b.name}: {b.dtype}[{','.join(map(str, b.shape))}]"


def _buffers(bs: Sequence[Buffer]) -> str:
    return ", ".join(map(_buffer, bs))


def _axes(axes: Sequence[Axis]) -> str:
    return ", ".join(f"{a.name} < {a.extent}" for a in axes)


def _block(body: Sequence[Stmt], indent: str) -> list[str]:
    lines: list[str] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            lines += [f"{indent}loop {_axes(stmt.axes)}:", *_block(stmt.body, indent + "  ")]
        elif isinstance(stmt, Fold):
            lines += [f"{indent}fold {_axes(stmt.axes)}:", *_block(stmt.body, indent + "  ")]
            lines += [f"{indent}  {_carry(c)}" for c in stmt.carries]
            if stmt.observer:
                lines += [f"{indent}observe:", *_block(stmt.observer, indent + "  ")]
        else:
            lines.append(indent + _line(stmt))
    return lines


def _carry(c: Carry) -> str:
    twist = "twist " if c.kind == "twist" else ""
    return f"carry {', '.join(c.results)} = {twist}{c.name}({', '.join(c.args)})"


def _line(stmt: Let | Load | Store) -> str:
    if isinstance(stmt, Store):
        return f"store {stmt.buffer}[{', '.join(map(ix.show, stmt.index))}] = {stmt.value}"
    if isinstance(stmt, Load):
        given = f" with {', '.join(stmt.indices)}" if stmt.indices else ""
        return f"{stmt.name} = load {stmt.buffer}[{', '.join(map(ix.show, stmt.index))}]{given}"
    if stmt.op == "lit":
        return f"{stmt.name} = lit {stmt.dtype} {_literal(stmt.dtype, stmt.attr)}"
    if stmt.op == "iota":
        return f"{stmt.name} = iota {ix.show(stmt.attr)}"
    if stmt.op == "cast":
        return f"{stmt.name} = cast {stmt.dtype} {stmt.args[0]}"
    return f"{stmt.name} = {stmt.op} {', '.join(stmt.args)}"


def _literal(dtype: str, bits: int) -> str:
    """The shortest decimal that rounds to the value; the bit pattern where there is none (a NaN with a payload)."""
    value = from_bits(dtype, bits)
    text = str(value if DTYPES[dtype].kind in "iub" else float(value))
    if DTYPES[dtype].kind == "f" and dtype != "f64":
        text = str(value)
    return text if read_bits(dtype, text) == bits else hex(bits)


@overload
def parse(text: str) -> Program | Kernel: ...
@overload
def parse(text: str, kind: type[Kernel]) -> Kernel: ...
@overload
def parse(text: str, kind: type[Program]) -> Program: ...
def parse(text: str, kind: type[Program] | type[Kernel] | None = None) -> Program | Kernel:
    """Inverse of `show`.  Raises `VerifyError` at a line that is no statement, or where ``kind`` is not what the text holds."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise VerifyError("Loop", "text", "it is empty")
    out = _Reader(lines).kernel() if lines[0].startswith("kernel ") else _program(lines)
    if kind is not None and not isinstance(out, kind):
        raise VerifyError("Loop", lines[0], f"a {kind.__name__.lower()} is wanted")
    return out


def _program(lines: list[str]) -> Program:
    reader = _Reader(lines)
    inputs = _read_buffers(reader.take(r"inputs ?(.*)")[0])
    temps = _read_buffers(reader.take(r"temps (.*)")[0]) if reader.peek().startswith("temps ") else ()
    kernels = []
    while reader.peek().startswith("kernel "):
        kernels.append(reader.kernel())
    outputs = []
    for item in items(reader.take(r"return (.*)")[0]):
        declared, _, alias = item.partition(" alias ")
        (b,) = _read_buffers(declared)
        outputs.append((b.name, b.shape, b.dtype, alias or None))
    return Program(tuple(kernels), inputs, temps, tuple(outputs))


def _read_buffers(text: str) -> tuple[Buffer, ...]:
    out = []
    for item in items(text):
        found = re.fullmatch(r"(\w+): (\w+)\[([\d,]*)\]", item)
        if found is None or found[2] not in DTYPES:
            raise VerifyError("Loop", item, "not a buffer's name: dtype[shape]")
        out.append(Buffer(found[1], tuple(int(n) for n in found[3].split(",") if n), found[2]))
    return tuple(out)


def _read_axes(text: str) -> tuple[Axis, ...]:
    out = []
    for item in items(text):
        name, _, extent = item.partition(" < ")
        if not extent.isdigit():
            raise VerifyError("Loop", item, "not an axis < extent")
        out.append(Axis(name, int(extent)))
    return tuple(out)


class _Reader:
    """Reads a block at a time; ``dtypes`` holds what each name read so far has."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.at = lines, 0
        self.dtypes: dict[str, str] = {}
        self.buffers: dict[str, str] = {}

    def peek(self) -> str:
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def take(self, pattern: str) -> tuple[str, ...]:
        line = self.peek()
        found = re.fullmatch(pattern, line.strip())
        if found is None:
            raise VerifyError("Loop", line.strip() or "end of text", f"expected {pattern!r}")
        self.at += 1
        return found.groups()

    def kernel(self) -> Kernel:
        name, inputs, outputs = self.take(r"kernel (\w+)\((.*)\) -> (.*):")
        ins, outs = _read_buffers(inputs), _read_buffers(outputs)
        self.dtypes, self.buffers = {}, {b.name: b.dtype for b in (*ins, *outs)}
        body, carries = self.block(2)
        if carries:
            raise VerifyError("Loop", name, "a carry outside a fold")
        return Kernel(name, ins, outs, body)

    def block(self, indent: int) -> tuple[tuple[Stmt, ...], tuple[Carry, ...]]:
        body: list[Stmt] = []
        carries: list[Carry] = []
        while (line := self.peek()) and len(line) - len(line.lstrip()) == indent:
            text = line.strip()
            if text == "observe:":
                break
            self.at += 1
            if text.startswith("loop "):
                body.append(Loop(_read_axes(text[5:-1]), self.block(indent + 2)[0]))
            elif text.startswith("fold "):
                body.append(self.fold(text, indent))
            elif text.startswith("carry "):
                carries.append(self.carry(text))
            else:
                body.append(self.line(text))
        return tuple(body), tuple(carries)

    def fold(self, text: str, indent: int) -> Fold:
        body, carries = self.block(indent + 2)
        if self.peek().strip() != "observe:":
            return Fold(_read_axes(text[5:-1]), body, carries)
        self.at += 1
        return Fold(_read_axes(text[5:-1]), body, carries, self.block(indent + 2)[0])

    def carry(self, text: str) -> Carry:
        found = re.fullmatch(r"carry ([\w, ]+) = (twist )?(\w+)\(([\w, ]*)\)", text)
        if found is None:
            raise VerifyError("Loop", text, "not a carry")
        results, name, args = tuple(items(found[1])), found[3], tuple(items(found[4]))
        known = tuple(self.dtype(a, text) for a in args)
        if found[2]:
            if name not in twists():
                raise VerifyError("Loop", text, f"no twist is called {name}")
            kind, dtypes = "twist", known[:1] * len(known)
        elif name in ("argmax", "argmin"):
            kind, dtypes = "arg", ("i64",)
        else:
            kind, dtypes = "monoid", known
        self.dtypes.update(zip(results, dtypes, strict=False))
        return Carry(kind, name, args, results, dtypes)

    def dtype(self, name: str, where: str) -> str:
        if name not in self.dtypes:
            raise VerifyError("Loop", where, f"{name} has no value here")
        return self.dtypes[name]

    def line(self, text: str) -> Let | Load | Store:
        if found := re.fullmatch(r"store (\w+)\[(.*)\] = (\w+)", text):
            return Store(found[1], tuple(map(ix.parse, items(found[2]))), found[3])
        if found := re.fullmatch(r"(\w+) = load (\w+)\[(.*)\](?: with (.*))?", text):
            if found[2] not in self.buffers:
                raise VerifyError("Loop", text, f"no buffer is called {found[2]}")
            self.dtypes[found[1]] = self.buffers[found[2]]
            index = tuple(map(ix.parse, items(found[3])))
            return Load(found[1], found[2], index, self.buffers[found[2]], tuple(items(found[4] or "")))
        if found := re.fullmatch(r"(\w+) = (\w+)(?: (.*))?", text):
            let = self.let(found[1], found[2], found[3] or "", text)
            self.dtypes[let.name] = let.dtype
            return let
        raise VerifyError("Loop", text, "not a statement")

    def let(self, name: str, op: str, rest: str, text: str) -> Let:
        if op == "iota":
            return Let(name, op, (), "i64", ix.parse(rest))
        if op in ("lit", "cast"):
            dtype, _, value = rest.partition(" ")
            if dtype not in DTYPES:
                raise VerifyError("Loop", text, f"no dtype is called {dtype!r}")
            if op == "cast":
                return Let(name, op, (value,), dtype)
            return Let(name, op, (), dtype, read_bits(dtype, value))
        if op not in ops():
            raise VerifyError("Loop", text, f"no operation is called {op}")
        args = tuple(items(rest))
        result = ops()[op].result
        return Let(name, op, args, self.dtype(args[-1], text) if result == "same" else result)
