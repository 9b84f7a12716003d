"""Executes Kernel IR on NumPy under SIMT rules, with every block and thread, pessimistically.

Shared memory, scratch and outputs start as NaN (integers: a pattern far out of range); an asynchronous copy lands only at its
wait; two accesses to one address of which one is a write and that nothing orders are a race; addresses are checked for
bounds and alignment, barriers and shuffles for divergence, waits for deadlock.  A fault raises `KernelFault`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from emmy_eq import index
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.simulate import control, tma, values
from emmy_eq.codegen.simulate.faults import Fault as _Fault
from emmy_eq.codegen.simulate.faults import KernelFault as KernelFault
from emmy_eq.codegen.simulate.memory import Memory, Outside
from emmy_eq.codegen.simulate.state import Blocks
from emmy_eq.errors import InvalidInput
from emmy_eq.ops import DTYPES

_TOGETHER = 8192  # threads that run at once: enough to hide the interpreter's cost a statement, few enough for the cache
_RECORDS = 1 << 23  # entries of the access records that blocks running at once may hold


def run(kernel: ir.Kernel, buffers: dict[str, np.ndarray[Any, Any]]) -> None:
    """Execute ``kernel`` on flat arrays by parameter name, in place.  Absent scratch is made here; outputs and scratch are
    poisoned first, and zeroed scratch must be zero again at the end.  Raises `KernelFault`."""
    data = {p.name: _flat(kernel, p, buffers) for p in kernel.params}
    memory = {name: _memory(kernel, name, flat) for name, flat in data.items()}
    outside = Outside(int(np.prod(kernel.grid)), kernel.threads // 32)
    with np.errstate(all="ignore"):
        for group in _groups(kernel):
            _run_group(kernel, group, memory, outside)
    for p in kernel.params:
        if p.kind == "zeroed" and data[p.name].any():
            raise KernelFault(kernel.name, "end", "protocol", f"{p.name} is not zero again")


def steps(kernel: ir.Kernel) -> int:
    """At most so many statements are executed by `run`, one after the other and each over the threads of many blocks: it takes
    microseconds for each, few or many threads alike."""
    extents = dict(zip(("bx", "by", "bz", "tid"), (*kernel.grid, kernel.threads), strict=True))
    return sum(1 for _ in _groups(kernel)) * _steps(kernel.body, extents)


def _steps(body: tuple[ir.Stmt, ...], extents: Mapping[str, int]) -> int:
    total = len(body)
    for s in body:
        if isinstance(s, ir.For):
            first, last = index.bounds(s.start, extents)[0], index.bounds(s.stop, extents)[1]
            total += len(range(first, last, s.step)) * _steps(s.body, {**extents, s.var: max(last, 1)})
        elif isinstance(s, ir.Role):
            total += sum(-(-count // control.GROUP) * _steps(b, extents) for (_, count), b in zip(s.warps, s.bodies, strict=True))
        else:
            total += sum(_steps(b, extents) for b in walk.bodies(s))
    return total


def _flat(kernel: ir.Kernel, p: ir.Param, buffers: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    given = buffers.get(p.name)
    if given is None and p.kind in ("scratch", "zeroed"):
        return values.poison(p.dtype, p.size) if p.kind == "scratch" else np.zeros(p.size, DTYPES[p.dtype])
    if given is None:
        raise InvalidInput(f"buffer {p.name}", f"kernel {kernel.name} needs it")
    if given.dtype != DTYPES[p.dtype] or given.size != p.size or not given.flags.c_contiguous:
        raise InvalidInput(f"buffer {p.name}", f"must be {p.size} contiguous elements of {p.dtype}, not {given.size} of {given.dtype}")
    flat = given.reshape(-1)
    if p.kind in ("output", "scratch"):
        flat[:] = values.poison(p.dtype, p.size)
    return flat


def _memory(kernel: ir.Kernel, name: str, flat: np.ndarray[Any, Any]) -> Memory:
    """Global memory; accesses are recorded where the kernel writes it, readers too where it also reads it."""
    written, read = _accesses(kernel)
    warps = kernel.threads // 32 if name in written and name in read else 0
    return Memory(name, flat, len(flat), 0, warps, tracked=name in written)


def _accesses(kernel: ir.Kernel) -> tuple[set[str], set[str]]:
    """Names of the global buffers that are written, and of those that are read."""
    maps = {m.name: m.buffer for m in kernel.maps}
    written: set[str] = set()
    read: set[str] = set()
    for s in walk.statements(kernel.body):
        match s:
            case ir.Load(buffer=name) | ir.CpAsync(buffer=name):
                read.add(name)
            case ir.Store(buffer=name):
                written.add(name)
            case ir.Atomic(buffer=name):
                written.add(name)
                read.add(name)
            case ir.TmaLoad(map=name):
                read.add(maps[name])
            case ir.TmaStore(map=name):
                written.add(maps[name])
            case _:
                pass
    return written, read


def _groups(kernel: ir.Kernel) -> Iterator[np.ndarray[Any, Any]]:
    """Numbers of the blocks to run at once, in step; one block where warps wait for one another, since blocks would differ in
    who is ready."""
    total = int(np.prod(kernel.grid))
    waits = any(isinstance(s, ir.Role | ir.MbarInit | ir.TmaStore | ir.Wgmma) for s in walk.statements(kernel.body))
    records = sum(a.size for a in kernel.shared) * (kernel.threads // 32)
    many = 1 if waits else max(1, min(_TOGETHER // kernel.threads, _RECORDS // max(records, 1)))
    for first in range(0, total, many):
        yield np.arange(first, min(first + many, total))


def _run_group(kernel: ir.Kernel, group: np.ndarray[Any, Any], memory: dict[str, Memory], outside: Outside) -> None:
    blocks = Blocks(kernel, group, memory, outside)
    before = -1
    try:
        for _ in control.run(blocks, kernel.body, blocks.env, blocks.everyone):
            if blocks.steps == before:
                raise _Fault("deadlock", "every warp that has not ended waits")
            before = blocks.steps
        tma.finish(blocks)
    except _Fault as f:
        raise blocks.fault(f) from None
