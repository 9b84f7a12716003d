"""What a statement of Kernel IR reads, writes and needs; the passes over Kernel IR ask here."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq import index
from emmy_eq.codegen.kernel_ir import grammar as ir
from emmy_eq.index import Idx

BLOCK = frozenset({"bx", "by", "bz"})
BUILTIN = BLOCK | {"tid"}

# The field of `emmy_eq.extract.targets.Target` that must hold for a statement; statements not listed run everywhere.
NEEDS: dict[type, str] = {
    ir.CpAsync: "cp_async", ir.CpAsyncCommit: "cp_async", ir.CpAsyncWait: "cp_async",
    ir.Ldmatrix: "mma_bf16", ir.Mma: "mma_bf16", ir.Stmatrix: "tma",
    ir.MbarInit: "tma", ir.MbarExpect: "tma", ir.MbarArrive: "tma", ir.MbarWait: "tma", ir.ProxyFence: "tma",
    ir.TmaLoad: "tma", ir.TmaStore: "tma", ir.TmaCommit: "tma", ir.TmaWait: "tma",
    ir.Wgmma: "wgmma", ir.WgmmaFence: "wgmma", ir.WgmmaCommit: "wgmma", ir.WgmmaWait: "wgmma", ir.SetMaxRegs: "wgmma",
}  # fmt: skip


def bodies(s: ir.Stmt) -> tuple[tuple[ir.Stmt, ...], ...]:
    """The statement lists inside a compound statement."""
    if isinstance(s, ir.For):
        return (s.body,)
    if isinstance(s, ir.If):
        return (s.body, s.orelse)
    return s.bodies if isinstance(s, ir.Role) else ()


def statements(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """All statements, outer before inner."""
    for s in body:
        yield s
        for inner in bodies(s):
            yield from statements(inner)


def writes(s: ir.Stmt) -> tuple[tuple[str, str], ...]:
    """(name, dtype) of the registers that the statement makes."""
    if isinstance(s, ir.Let | ir.Declare | ir.Shuffle):
        return ((s.name, s.dtype),)
    if isinstance(s, ir.Atomic):
        return ((s.name, "i32"),)
    if isinstance(s, ir.Load):
        return tuple((n, s.dtype) for n in s.names)
    return tuple((n, "i32") for n in s.names) if isinstance(s, ir.Ldmatrix) else ()


def indices(s: ir.Stmt) -> tuple[Idx, ...]:
    """The index expressions of the statement itself, without those of its predicate."""
    values = (getattr(s, name) for name in s.__slots__)
    return tuple(x for v in values for x in (v if isinstance(v, tuple) else (v,)) if isinstance(x, Idx))


def predicate(s: ir.Stmt) -> ir.Predicate:
    return s.where if isinstance(s, ir.Load | ir.Store | ir.Atomic | ir.If | ir.CpAsync) else ()


def predicate_names(where: ir.Predicate) -> Iterator[str]:
    for c in where:
        if isinstance(c, ir.Test | ir.AnyLane):
            yield c.register
        elif isinstance(c, ir.Cmp):
            yield from index.variables(c.left) | index.variables(c.right)


def operands(s: ir.Stmt) -> tuple[ir.Atom, ...]:
    """The registers and constants that the statement reads as values."""
    match s:
        case ir.Let() | ir.Set():
            return s.args
        case ir.Declare():
            return (s.init,)
        case ir.Store() | ir.Stmatrix():
            return tuple(s.values)
        case ir.Shuffle():
            return (s.source,)
        case ir.Atomic():
            return (s.value,)
        case ir.Mma():
            return (*s.d, *s.a, *s.b)
        case ir.Wgmma():
            return (*s.d, *fragment(s), s.scale_d)
        case ir.WgmmaFence():
            return s.operands
        case ir.WgmmaWait():
            return s.results
    return ()


def fragment(s: ir.Wgmma) -> tuple[str, ...]:
    """The registers of operand A; () where it is a shared tile."""
    return tuple(x for x in s.a if isinstance(x, str)) if all(isinstance(x, str) for x in s.a) else ()


def needs(kernel: ir.Kernel) -> frozenset[str]:
    """The fields of a target that must hold: among ``cp_async mma_bf16 tma wgmma``."""
    return frozenset(NEEDS[type(s)] for s in statements(kernel.body) if type(s) in NEEDS)
