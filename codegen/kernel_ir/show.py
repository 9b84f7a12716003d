"""Text of Kernel IR: one line a statement, nesting by indentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from emmy_eq.codegen.kernel_ir import grammar as ir
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, FLOATS


def literal(x: ir.Lit) -> Any:
    """The value of a constant as a NumPy scalar of its dtype."""
    dtype = DTYPES[x.dtype]
    return np.array([x.bits & ((1 << 8 * dtype.itemsize) - 1)], dtype=f"u{dtype.itemsize}").view(dtype)[0]


def show_atom(x: ir.Atom) -> str:
    if isinstance(x, str):
        return x
    value = literal(x)
    if x.dtype in FLOATS:
        return f"{float(value)!r}" if value == value else f"nan[{x.bits:#x}]"
    return str(value).lower()


def show_predicate(where: ir.Predicate) -> str:
    return " & ".join(_condition(c) for c in where) if where else "true"


def _condition(c: ir.Condition) -> str:
    if isinstance(c, ir.Elect):
        return "elect"
    if isinstance(c, ir.AnyLane):
        return f"any {c.register}"
    if isinstance(c, ir.Test):
        return f"{'!' if c.negate else ''}{c.register}"
    return f"{c.left} {c.op} {c.right}"


def _when(where: ir.Predicate) -> str:
    return f" if {show_predicate(where)}" if where else ""


def _names(names: tuple[Any, ...]) -> str:
    return ", ".join(show_atom(n) for n in names)


def _at(array: str, index: Any) -> str:
    return f"{array}[{index}]"


def _let(s: ir.Let) -> str:
    operands = str(s.idx) if s.op == "index" else _names(s.args)
    return f"{s.name}: {s.dtype} = {s.op} {operands}"


def _load(s: ir.Load) -> str:
    other = f" else {show_atom(s.other)}" if s.other is not None else ""
    span = _at(s.buffer, s.offset) if len(s.names) == 1 else _at(s.buffer, f"{s.offset} : +{len(s.names)}")
    cache = f".{s.cache}" if s.cache else ""
    return f"{_names(s.names)}: {s.dtype} = load.{s.space}{cache} {span}{_when(s.where)}{other}"


def _store(s: ir.Store) -> str:
    span = _at(s.buffer, s.offset) if len(s.values) == 1 else _at(s.buffer, f"{s.offset} : +{len(s.values)}")
    return f"store.{s.space} {span} = {_names(s.values)}: {s.dtype}{_when(s.where)}"


def _barrier(s: ir.Barrier) -> str:
    threads = f" threads={s.threads}" if s.threads is not None else ""
    return f"barrier {s.id}{threads}{'' if s.wait else ' arrive'}"


def _wgmma(s: ir.Wgmma) -> str:
    a = _at(str(s.a[0]), s.a[1]) if isinstance(s.a[1], Idx) else f"({_names(s.a)})"
    flags = f"{' ta' if s.transpose_a else ''}{' tb' if s.transpose_b else ''} leading={s.leading} stride={s.stride}"
    return f"wgmma.m64n{s.n}.{s.dtype} ({_names(s.d)}) += {a} * {_at(*s.b)} scale_d={show_atom(s.scale_d)}{flags}"


def _tma_load(s: ir.TmaLoad) -> str:
    point = ", ".join(map(str, s.coordinates))
    return f"tma.load {_at(s.shared, s.to)} <- {s.map}({point}) on {_at(s.array, s.index)}"


_TEXT: dict[type, Callable[[Any], str]] = {
    ir.Let: _let,
    ir.Declare: lambda s: f"var {s.name}: {s.dtype} = {show_atom(s.init)}",
    ir.Set: lambda s: f"{s.name} = {s.op} {_names(s.args)}",
    ir.Load: _load,
    ir.Store: _store,
    ir.Shuffle: lambda s: f"{s.name}: {s.dtype} = shuffle.{s.mode} {s.source}, {s.lane}",
    ir.Atomic: lambda s: f"{s.name}: i32 = atomic.add.{s.space} {_at(s.buffer, s.offset)}, {show_atom(s.value)}{_when(s.where)}",
    ir.Return: lambda s: "return",
    ir.Barrier: _barrier,
    ir.WarpSync: lambda s: "warpsync",
    ir.Fence: lambda s: "fence.device",
    ir.CpAsync: lambda s: f"cp.async {_at(s.shared, s.to)} <- {_at(s.buffer, f'{s.offset} : +{s.count}')}: {s.dtype}{_when(s.where)}",
    ir.CpAsyncCommit: lambda s: "cp.async.commit",
    ir.CpAsyncWait: lambda s: f"cp.async.wait {s.pending}",
    ir.MbarInit: lambda s: f"mbar.init {_at(s.array, s.index)} count={s.count}",
    ir.MbarExpect: lambda s: f"mbar.expect {_at(s.array, s.index)} bytes={s.bytes}",
    ir.MbarArrive: lambda s: f"mbar.arrive {_at(s.array, s.index)}",
    ir.MbarWait: lambda s: f"mbar.wait {_at(s.array, s.index)} parity={s.parity}",
    ir.TmaLoad: _tma_load,
    ir.TmaStore: lambda s: f"tma.store {s.map}({', '.join(map(str, s.coordinates))}) <- {_at(s.shared, s.source)}",
    ir.TmaCommit: lambda s: "tma.commit",
    ir.TmaWait: lambda s: f"tma.wait {s.pending}",
    ir.ProxyFence: lambda s: "fence.proxy",
    ir.Ldmatrix: lambda s: f"{_names(s.names)}: i32 = ldmatrix{'.trans' if s.transpose else ''} {_at(s.shared, s.offset)}",
    ir.Stmatrix: lambda s: f"stmatrix{'.trans' if s.transpose else ''} {_at(s.shared, s.offset)} = {_names(s.values)}",
    ir.Mma: lambda s: f"mma.m{s.shape[0]}n{s.shape[1]}k{s.shape[2]}.{s.dtype} ({_names(s.d)}) += ({_names(s.a)}) * ({_names(s.b)})",
    ir.WgmmaFence: lambda s: f"wgmma.fence{f' ({_names(s.operands)})' if s.operands else ''}",
    ir.Wgmma: _wgmma,
    ir.WgmmaCommit: lambda s: "wgmma.commit",
    ir.WgmmaWait: lambda s: f"wgmma.wait {s.pending}{f' ({_names(s.results)})' if s.results else ''}",
    ir.SetMaxRegs: lambda s: f"setmaxregs {'+' if s.increase else '-'}{s.registers}",
}


def show_statement(s: ir.Stmt) -> str:
    """One line; of a compound statement its head."""
    if isinstance(s, ir.For):
        unroll = {0: " unroll", 1: ""}.get(s.unroll, f" unroll={s.unroll}")
        return f"for {s.var} in {s.start} .. {s.stop} step {s.step}{unroll}:"
    if isinstance(s, ir.If):
        return f"if {show_predicate(s.where)}:"
    if isinstance(s, ir.Role):
        return f"role {', '.join(f'warps {f}..{f + n}' for f, n in s.warps)}:"
    return _TEXT[type(s)](s)


def _lines(body: tuple[ir.Stmt, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for s in body:
        if isinstance(s, ir.Role):
            for (first, count), branch in zip(s.warps, s.bodies, strict=True):
                yield f"{pad}role warps {first}..{first + count}:"
                yield from _lines(branch, depth + 1)
            continue
        yield pad + show_statement(s)
        if isinstance(s, ir.For | ir.If):
            yield from _lines(s.body, depth + 1)
        if isinstance(s, ir.If) and s.orelse:
            yield f"{pad}else:"
            yield from _lines(s.orelse, depth + 1)


def show(kernel: ir.Kernel) -> str:
    """The whole kernel."""
    params = ", ".join(f"{p.kind} {p.name}: {p.dtype}[{p.size}]" for p in kernel.params)
    grid = "x".join(map(str, kernel.grid))
    blocks = f" min_blocks {kernel.min_blocks}" if kernel.min_blocks else ""
    lines = [f"kernel {kernel.name}({params}) grid {grid} threads {kernel.threads}{blocks}:"]
    for m in kernel.maps:
        buffer = f"{m.buffer}[{m.start}]" if m.start else m.buffer
        lines.append(f"  map {m.name}: {m.dtype} of {buffer} shape {m.shape} strides {m.strides} box {m.box} swizzle {m.swizzle}")
    lines += [f"  shared {a.name}: {a.dtype}[{a.size}] align {a.align}" for a in kernel.shared]
    return "\n".join([*lines, *_lines(kernel.body, 1)]) + "\n"
