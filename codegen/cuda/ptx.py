"""Inline PTX of the statements that C++ has no words for (PTX ISA 8; each form is one instruction)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from emmy_eq import index
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.cuda.text import name
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.index import Idx
from emmy_eq.ops import itemsize

UNIT = 16  # bytes that a descriptor's addresses are counted in


class Printer(Protocol):
    """What the statement printer offers here: text of indices, predicates and operands; bytes of a shared array's element."""

    def idx(self, x: Idx) -> str: ...

    def offset(self, buffer: str, x: Idx) -> str: ...

    def test(self, where: ir.Predicate) -> str: ...

    def operand(self, a: ir.Atom) -> str: ...

    def dtype(self, a: ir.Atom) -> str: ...

    def size(self, array: str) -> int: ...


def asm(text: str, outputs: Iterable[str] = (), inputs: Iterable[str] = (), memory: bool = True) -> str:
    """One ``asm volatile`` statement."""
    out, given = ", ".join(outputs), ", ".join(inputs)
    tail = ' : "memory"' if memory else ""
    if not (out or given or tail):
        return f'asm volatile("{text}");'
    return f'asm volatile("{text}" : {out} : {given}{tail});'.replace(" :  ", " : ").replace(" :  :", " : :")


def _slots(first: int, count: int) -> str:
    return ", ".join(f"%{i}" for i in range(first, first + count))


def _smem(p: Printer, array: str, x: Idx) -> str:
    return f"emmy_smem({p.offset(array, x)})"


def _r(text: str) -> str:
    return f'"r"({text})'


def _cp_async(p: Printer, s: ir.CpAsync) -> list[str]:
    size = s.count * itemsize(s.dtype)
    source = p.offset(s.buffer, s.offset)
    form = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global"
    if not s.where:
        return [asm(f"{form} [%0], [%1], {size};", (), (_r(_smem(p, s.shared, s.to)), f'"l"({source})'))]
    test = p.test(s.where)
    # The address is never followed where no byte is read, but it stays inside the buffer all the same.
    source = f'"l"({test} ? {source} : {name(s.buffer)})'
    return [asm(f"{form} [%0], [%1], {size}, %2;", (), (_r(_smem(p, s.shared, s.to)), source, _r(f"{test} ? {size} : 0")))]


def _mbar(p: Printer, s: ir.MbarInit | ir.MbarExpect | ir.MbarArrive | ir.MbarWait | ir.TmaLoad) -> str:
    return _r(_smem(p, s.array, s.index))


def _init(p: Printer, s: ir.MbarInit) -> list[str]:
    text = f"mbarrier.init.shared::cta.b64 [%0], {s.count}; fence.mbarrier_init.release.cluster;"
    return [asm(text, (), (_mbar(p, s),))]


def _expect(p: Printer, s: ir.MbarExpect) -> list[str]:
    return [asm(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], {s.bytes};", (), (_mbar(p, s),))]


def _arrive(p: Printer, s: ir.MbarArrive) -> list[str]:
    return [asm("mbarrier.arrive.shared::cta.b64 _, [%0];", (), (_mbar(p, s),))]


def _wait(p: Printer, s: ir.MbarWait) -> list[str]:
    text = "{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }"
    return [asm(text, (), (_mbar(p, s), _r(p.idx(s.parity))))]


def _tma_load(p: Printer, s: ir.TmaLoad) -> list[str]:
    rank = len(s.coordinates)
    form = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    given = (_r(_smem(p, s.shared, s.to)), f'"l"(&{name(s.map)})', *(_r(p.idx(x)) for x in s.coordinates), _mbar(p, s))
    return [asm(f"{form} [%0], [%1, {{{_slots(2, rank)}}}], [%{rank + 2}];", (), given)]


def _tma_store(p: Printer, s: ir.TmaStore) -> list[str]:
    rank = len(s.coordinates)
    given = (f'"l"(&{name(s.map)})', *(_r(p.idx(x)) for x in s.coordinates), _r(_smem(p, s.shared, s.source)))
    return [asm(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{_slots(1, rank)}}}], [%{rank + 1}];", (), given)]


def _ldmatrix(p: Printer, s: ir.Ldmatrix) -> list[str]:
    n = len(s.names)
    form = f"ldmatrix.sync.aligned.m8n8.x{n}{'.trans' if s.transpose else ''}.shared.b16"
    registers = [name(r) for r in s.names]
    outputs = [f'"=r"({r})' for r in registers]
    return [f"int {', '.join(registers)};", asm(f"{form} {{{_slots(0, n)}}}, [%{n}];", outputs, (_r(_smem(p, s.shared, s.offset)),))]


def _stmatrix(p: Printer, s: ir.Stmatrix) -> list[str]:
    n = len(s.values)
    form = f"stmatrix.sync.aligned.m8n8.x{n}{'.trans' if s.transpose else ''}.shared.b16"
    given = (_r(_smem(p, s.shared, s.offset)), *(_r(name(v)) for v in s.values))
    return [asm(f"{form} [%0], {{{_slots(1, n)}}};", (), given)]


def _operand(p: Printer, register: str) -> str:
    text = name(register)
    return _r(f"__float_as_int({text})" if p.dtype(register) == "f32" else text)


def _accumulators(d: tuple[str, ...]) -> list[str]:
    return [f'"+f"({name(r)})' for r in d]


def _mma(p: Printer, s: ir.Mma) -> list[str]:
    m, n, k = s.shape
    form = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.f32.{s.dtype}.{s.dtype}.f32"
    d, a, b = _slots(0, 4), _slots(4, len(s.a)), _slots(4 + len(s.a), len(s.b))
    given = [_operand(p, r) for r in (*s.a, *s.b)]
    return [asm(f"{form} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};", _accumulators(s.d), given, memory=False)]


def _tile(p: Printer, array: str, x: Idx, leading: int, stride: int) -> str:
    """The descriptor of a tile: that of the varying part of its place, plus a constant, so that tiles of one buffer share the work."""
    parts: dict[Idx, int] = {}
    for factor, n in index.terms(x):  # of a sum as it was written: a factor, or 1, may come twice
        parts[factor] = parts.get(factor, 0) + n
    units, rest = divmod(parts.pop(index.const(1), 0) * p.size(array), UNIT)
    base = x if rest else index.from_terms([*parts.items()])
    return f'"l"(emmy_tile({_smem(p, array, base)}, {leading}, {stride}){f" + {units}" if units and not rest else ""})'


def _wgmma(p: Printer, s: ir.Wgmma) -> list[str]:
    n, fragment = len(s.d), walk.fragment(s)
    k = 8 if s.dtype == "tf32" else 16
    form = f"wgmma.mma_async.sync.aligned.m64n{s.n}k{k}.f32.{s.dtype}.{s.dtype}"
    if fragment:
        a_text, given = f"{{{_slots(n, 4)}}}", [_operand(p, r) for r in fragment]
    else:
        assert isinstance(s.a[1], Idx)
        a_text, given = f"%{n}", [_tile(p, str(s.a[0]), s.a[1], s.leading[0], s.stride[0])]
    b_slot = n + len(given)
    given += [_tile(p, s.b[0], s.b[1], s.leading[1], s.stride[1]), _r(f"(int){p.operand(s.scale_d)}")]
    # tf32 operands are K-major always and have no transpose flags; a register operand has none either.
    flags = "" if s.dtype == "tf32" else "".join(f", {int(t)}" for t in ((s.transpose_a,) if not fragment else ()) + (s.transpose_b,))
    text = f"{{ .reg .pred p; setp.ne.b32 p, %{b_slot + 1}, 0; {form} {{{_slots(0, n)}}}, {a_text}, %{b_slot}, p, 1, 1{flags}; }}"
    return [asm(text, _accumulators(s.d), given)]


def _barrier(p: Printer, s: ir.Barrier) -> list[str]:
    if s.id == 0 and s.threads is None:
        return ["__syncthreads();"]
    count = f", {s.threads}" if s.threads is not None else ""
    return [asm(f"bar.{'sync' if s.wait else 'arrive'} {s.id}{count};")]


def _plain(text: str) -> Callable[[Printer, Any], list[str]]:
    return lambda p, s: [asm(text)]


def _counted(text: str) -> Callable[[Printer, Any], list[str]]:
    return lambda p, s: [asm(f"{text} {s.pending};")]


STATEMENTS: Mapping[type, Callable[[Any, Any], list[str]]] = {
    ir.Barrier: _barrier,
    ir.CpAsync: _cp_async,
    ir.CpAsyncCommit: _plain("cp.async.commit_group;"),
    ir.CpAsyncWait: _counted("cp.async.wait_group"),
    ir.MbarInit: _init,
    ir.MbarExpect: _expect,
    ir.MbarArrive: _arrive,
    ir.MbarWait: _wait,
    ir.TmaLoad: _tma_load,
    ir.TmaStore: _tma_store,
    ir.TmaCommit: _plain("cp.async.bulk.commit_group;"),
    ir.TmaWait: _counted("cp.async.bulk.wait_group.read"),
    ir.ProxyFence: _plain("fence.proxy.async.shared::cta;"),
    ir.Ldmatrix: _ldmatrix,
    ir.Stmatrix: _stmatrix,
    ir.Mma: _mma,
    ir.WgmmaFence: lambda p, s: [asm("wgmma.fence.sync.aligned;", _accumulators(s.operands))],
    ir.Wgmma: _wgmma,
    ir.WgmmaCommit: _plain("wgmma.commit_group.sync.aligned;"),
    ir.WgmmaWait: lambda p, s: [asm(f"wgmma.wait_group.sync.aligned {s.pending};", _accumulators(s.results))],
    ir.SetMaxRegs: lambda p, s: [asm(f"setmaxnreg.{'inc' if s.increase else 'dec'}.sync.aligned.u32 {s.registers};")],
}
