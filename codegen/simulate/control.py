"""Control flow and barriers.

A body is a generator that yields where it has to wait for another warp; `Role` runs its branches in turn, and a round in
which none of them moves on is a deadlock.  Divergent branches run one after the other under a mask of active threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.simulate import cp_async, matrix, statements, tma
from emmy_eq.codegen.simulate.clocks import Array
from emmy_eq.codegen.simulate.faults import Fault
from emmy_eq.codegen.simulate.state import Active, Blocks, NamedBarrier, Wait
from emmy_eq.codegen.simulate.values import Value

GROUP = 4  # warps of a warpgroup


def _for(k: Blocks, s: ir.For, env: dict[str, Value], active: Active) -> Wait:
    start, stop = k.index(env, s.start), k.index(env, s.stop)
    if isinstance(start, np.ndarray) or isinstance(stop, np.ndarray):
        first, last = k.spread(start)[active], k.spread(stop)[active]
        if (first != first[0]).any() or (last != last[0]).any():
            yield from _divergent_for(k, s, env, active, start, stop)
            return
        start, stop = int(first[0]), int(last[0])
    for i in range(int(start), int(stop), s.step):
        env[s.var] = i
        yield from run(k, s.body, env, active)
        if k.gone.any():
            active = active & ~k.gone
            if not active.any():
                return


def _divergent_for(k: Blocks, s: ir.For, env: dict[str, Value], active: Active, start: Any, stop: Any) -> Wait:
    at = np.array(k.spread(start), np.int64)
    while (inside := active & (at < stop) & ~k.gone).any():
        env[s.var] = at
        yield from run(k, s.body, env, inside)
        at = at + s.step


def _if(k: Blocks, s: ir.If, env: dict[str, Value], active: Active) -> Wait:
    taken = k.holds(env, s.where, active)
    if taken.any():
        yield from run(k, s.body, env, taken)
    rest = active & ~taken
    if s.orelse and rest.any():
        yield from run(k, s.orelse, env, rest)


def _role(k: Blocks, s: ir.Role, env: dict[str, Value], active: Active) -> Wait:
    """Each branch on its own, and in it each warpgroup: one may wait for what another does later."""
    warps = k.lanes.warp
    k.parallel += 1
    branches: list[tuple[Wait, set[str] | None]] = []
    for (first, count), body in zip(s.warps, s.bodies, strict=True):
        for start in range(first, first + count, GROUP):
            mine = active & (warps >= start) & (warps < min(start + GROUP, first + count))
            branches.append((run(k, body, dict(env), mine), None if k.wgmma.touched is None else set()))
    while branches:
        before = k.steps
        branches = [b for b in branches if _advance(k, *b)]
        if branches and k.steps == before:
            yield
    k.parallel -= 1


def _advance(k: Blocks, branch: Wait, touched: set[str] | None) -> bool:
    """Run until it waits; False once it has ended.  ``touched``: of its own registers."""
    k.wgmma.touched = touched
    try:
        next(branch)
    except StopIteration:
        return False
    return True


def _return(k: Blocks, s: ir.Return, env: dict[str, Value], active: Active) -> Wait:
    k.gone |= active
    yield from ()


def _barrier(k: Blocks, s: ir.Barrier, env: dict[str, Value], active: Active) -> Wait:
    full = k.whole_warps(active, "barrier")
    wanted = s.threads if s.threads is not None else k.kernel.threads
    here = full.sum(axis=1) * 32
    if ((here == 0) | (here == wanted)).all():
        k.clocks.join(full)
        return
    if not k.parallel:
        b = int(np.argmax((here != 0) & (here != wanted)))
        raise Fault("divergence", f"{here[b]} of {wanted} threads of block {k.lanes.grid[b]} reach the barrier")
    yield from _named_barrier(k, s, full, wanted)


def _named_barrier(k: Blocks, s: ir.Barrier, full: Array, wanted: int) -> Wait:
    """Some of the threads arrive; warp-specialized kernels run a block at a time, so there is one block here."""
    bar = k.barriers.setdefault(s.id, NamedBarrier())
    b, w = np.nonzero(full)
    k.clocks.release(b, w)
    given = np.stack([k.clocks.known[b, w].max(axis=0), k.clocks.fenced[b, w].max(axis=0)])
    bar.clock = given if bar.clock is None else np.maximum(bar.clock, given)
    bar.arrived += 32 * len(w)
    if bar.arrived > wanted:
        raise Fault("divergence", f"{bar.arrived} threads arrive at barrier {s.id} of {wanted}")
    generation = bar.generation
    if bar.arrived == wanted:
        bar.done[generation] = bar.clock
        bar.generation, bar.arrived, bar.clock = generation + 1, 0, None
    if not s.wait:
        k.steps += 1
        return
    yield from k.wait(s, lambda: bar.generation > generation)
    known, fenced = bar.done[generation]
    k.clocks.known[b, w] = np.maximum(k.clocks.known[b, w], known)
    k.clocks.fenced[b, w] = np.maximum(k.clocks.fenced[b, w], fenced)


def run(k: Blocks, body: tuple[ir.Stmt, ...], env: dict[str, Value], active: Active) -> Wait:
    """Execute ``body``; a generator that yields whenever no warp can move on."""
    for s in body:
        k.statement = s
        kind = type(s)
        simple = SIMPLE.get(kind)
        if simple is not None:
            simple(k, s, env, active)
            continue
        yield from WAITING[kind](k, s, env, active)
        if k.gone.any():
            active = active & ~k.gone
        if not active.any():
            return


SIMPLE: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], None]] = {
    **statements.HANDLERS,
    **cp_async.HANDLERS,
    **matrix.HANDLERS,
    **tma.HANDLERS,
}
WAITING: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], Wait]] = {
    **tma.WAITING,
    ir.For: _for,
    ir.If: _if,
    ir.Role: _role,
    ir.Return: _return,
    ir.Barrier: _barrier,
}
