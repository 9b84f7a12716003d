"""Runs the blocks of one kernel, all their threads at once, one statement at a time.

A body is a generator that yields where it has to wait for another warp; `Role` runs its branches in turn, and a round in
which none of them moves on is a deadlock.  Divergent branches run one after the other under a mask of active threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir.show import literal, show_statement
from emmy_eq.codegen.simulate import values
from emmy_eq.codegen.simulate.clocks import Array, Clocks
from emmy_eq.codegen.simulate.faults import Fault, KernelFault
from emmy_eq.codegen.simulate.memory import Lanes, Memory, Outside
from emmy_eq.codegen.simulate.values import Value
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES

Active = Array  # bool, one a thread
Wait = Iterator[None]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal, ">=": np.greater_equal, ">": np.greater,
}  # fmt: skip


@dataclass(slots=True)
class NamedBarrier:
    """Arrivals so far, and the clocks that each completed generation hands to those who waited."""

    arrived: int = 0
    generation: int = 0
    clock: Array | None = None
    done: dict[int, Array] = field(default_factory=dict)


class Blocks:
    """The state of blocks that run together: registers, shared memory, clocks."""

    def __init__(self, kernel: ir.Kernel, grid: Array, memory: dict[str, Memory], outside: Outside) -> None:
        self.kernel, self.outside = kernel, outside
        self.warps = kernel.threads // 32
        self.lanes = Lanes.of(grid, kernel.threads)
        self.n = len(grid) * kernel.threads
        self.clocks = Clocks(len(grid), self.warps)
        self.everyone = np.ones(self.n, np.bool_)
        self.gone = np.zeros(self.n, np.bool_)
        self.memory = dict(memory)
        for a in kernel.shared:
            if a.dtype != "mbar":
                data = values.poison(a.dtype, a.size * len(grid))
                self.memory[a.name] = Memory(a.name, data, a.size, a.size, self.warps, tracked=True)
        self.barriers: dict[int, NamedBarrier] = {}
        self.parallel = 0  # depth of Role
        self.steps = 0  # grows whenever a warp moves on
        self.statement: ir.Stmt | None = None
        self.env = self._builtins(grid)
        self.extension: dict[str, Any] = {}  # state of the asynchronous units, by name

    def _builtins(self, grid: Array) -> dict[str, Value]:
        gx, gy, _ = self.kernel.grid
        point = {"bx": grid % gx, "by": grid // gx % gy, "bz": grid // (gx * gy)}
        env: dict[str, Value] = {"tid": self.lanes.thread.astype(np.int64)}
        for name, at in point.items():
            env[name] = int(at[0]) if len(grid) == 1 else at[self.lanes.block].astype(np.int64)
        return env

    # values

    def get(self, env: dict[str, Value], a: ir.Atom) -> Value:
        value = env[a] if isinstance(a, str) else literal(a)
        return np.int64(value) if isinstance(value, int) else value

    def spread(self, value: Value) -> Array:
        return np.broadcast_to(value, (self.n,))

    def index(self, env: dict[str, Value], x: Idx) -> Any:
        return values.evaluate(x, env)

    def holds(self, env: dict[str, Value], where: ir.Predicate, active: Active) -> Active:
        """The active threads for which the predicate is true."""
        for c in where:
            if isinstance(c, ir.Elect):
                active = active & self.elected(active)
            elif isinstance(c, ir.Test):
                active = active & (env[c.register] != c.negate)
            else:
                active = active & _COMPARE[c.op](self.index(env, c.left), self.index(env, c.right))
        return active

    def elected(self, active: Active) -> Active:
        self.whole_warps(active, "elect")
        return np.asarray(self.lanes.lane == 0)

    def by_warp(self, active: Active) -> Array:
        return active.reshape(self.lanes.blocks, self.warps, 32)

    def whole_warps(self, active: Active, what: str) -> Array:
        """(blocks, warps): which warps take part; a warp must do so with all its lanes."""
        lanes = self.by_warp(active)
        some, full = lanes.any(axis=2), lanes.all(axis=2)
        if (some != full).any():
            b, w = np.argwhere(some != full)[0]
            raise Fault("divergence", f"{what} in warp {w} of block {self.lanes.grid[b]}, of which only some lanes are here")
        return np.asarray(full)

    # running

    def fault(self, f: Fault) -> KernelFault:
        where = show_statement(self.statement) if self.statement is not None else "start"
        return KernelFault(self.kernel.name, where, f.kind, f.why)

    def run(self, body: tuple[ir.Stmt, ...], env: dict[str, Value], active: Active) -> Wait:
        for s in body:
            self.statement = s
            kind = type(s)
            simple = SIMPLE.get(kind)
            if simple is not None:
                simple(self, s, env, active)
                continue
            yield from WAITING[kind](self, s, env, active)
            if self.gone.any():
                active = active & ~self.gone
            if not active.any():
                return

    def wait(self, s: ir.Stmt, ready: Callable[[], bool]) -> Wait:
        """Let others run until ``ready``."""
        self.steps += 1
        while not ready():
            yield
            self.statement = s
        self.steps += 1


# straight-line statements


def _let(k: Blocks, s: ir.Let, env: dict[str, Value], active: Active) -> None:
    if s.op == "index":
        assert s.idx is not None
        env[s.name] = np.asarray(k.index(env, s.idx)).astype(DTYPES[s.dtype])
        return
    env[s.name] = values.apply(s.op, [k.get(env, a) for a in s.args], s.dtype)


def _declare(k: Blocks, s: ir.Declare, env: dict[str, Value], active: Active) -> None:
    env[s.name] = np.array(k.spread(k.get(env, s.init)))


def _set(k: Blocks, s: ir.Set, env: dict[str, Value], active: Active) -> None:
    value = values.apply(s.op, [k.get(env, a) for a in s.args], s.dtype)
    np.copyto(env[s.name], value, where=active)


def _load(k: Blocks, s: ir.Load, env: dict[str, Value], active: Active) -> None:
    memory = k.memory[s.buffer]
    who = np.flatnonzero(k.holds(env, s.where, active))
    address = memory.locate(k.spread(k.index(env, s.offset))[who], len(s.names), who, k.lanes)
    memory.note_read(address, who, k.lanes, k.clocks, k.outside)
    found = memory.data[address]
    if len(who) == k.n:
        env.update(zip(s.names, found.T, strict=True))
        return
    other = literal(s.other) if s.other is not None else DTYPES[s.dtype].type(0)
    for i, name in enumerate(s.names):
        out = np.full(k.n, other, DTYPES[s.dtype])
        out[who] = found[:, i]
        env[name] = out


def _store(k: Blocks, s: ir.Store, env: dict[str, Value], active: Active) -> None:
    memory = k.memory[s.buffer]
    who = np.flatnonzero(k.holds(env, s.where, active))
    address = memory.locate(k.spread(k.index(env, s.offset))[who], len(s.values), who, k.lanes)
    memory.note_write(address, who, k.lanes, k.clocks, k.outside)
    for i, value in enumerate(s.values):
        memory.data[address[:, i]] = k.spread(k.get(env, value))[who]


_SHUFFLE: dict[str, Callable[[Array, Array], Any]] = {
    "xor": np.bitwise_xor,
    "up": np.subtract,
    "down": np.add,
    "idx": lambda lane, by: by,
}


def _shuffle(k: Blocks, s: ir.Shuffle, env: dict[str, Value], active: Active) -> None:
    k.whole_warps(active, "shuffle")
    lane, by = k.lanes.lane, k.index(env, s.lane)
    source = np.asarray(_SHUFFLE[s.mode](lane, k.spread(by)))
    inside = (source >= 0) & (source < 32)
    if s.mode in ("xor", "idx") and (active & ~inside).any():
        raise Fault("bounds", f"shuffle from lane {source[active & ~inside][0]}")
    source = np.where(inside, source, lane)
    value = k.spread(k.get(env, s.source)).reshape(-1, 32)
    env[s.name] = np.take_along_axis(value, source.reshape(-1, 32), axis=1).ravel()


def _atomic(k: Blocks, s: ir.Atomic, env: dict[str, Value], active: Active) -> None:
    memory = k.memory[s.buffer]
    who = np.flatnonzero(k.holds(env, s.where, active))
    address = memory.locate(k.spread(k.index(env, s.offset))[who], 1, who, k.lanes)
    memory.note_write(address, who, k.lanes, k.clocks, k.outside, atomic=True)
    given = k.spread(k.get(env, s.value))[who]
    old = values.poison(s.dtype, k.n)
    for f, a, value in zip(who, address[:, 0], given, strict=True):
        old[f] = memory.data[a]
        memory.data[a] = _ATOMIC[s.op](memory.data[a], value)
    env[s.name] = old
    if s.space == "global":
        _meet_outside(k, who)


def _meet_outside(k: Blocks, who: Array) -> None:
    """An atomic on global memory hands over what its warp has fenced, and shows what earlier blocks handed over."""
    b, w = k.lanes.block[who], k.lanes.warp[who]
    np.maximum.at(k.outside.released, k.lanes.grid[b], k.clocks.fenced[b, w])
    k.clocks.known[b, w, k.clocks.outside] = 1


def _increment(old: Value, limit: Value) -> Value:
    return old.dtype.type(0) if old.view(np.uint32) >= limit.view(np.uint32) else old + old.dtype.type(1)


_ATOMIC: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda old, x: old + x,
    "max": max,
    "min": min,
    "exch": lambda old, x: x,
    "inc": _increment,
}


def _fence(k: Blocks, s: ir.Fence, env: dict[str, Value], active: Active) -> None:
    if s.scope == "block":
        return
    lanes = k.by_warp(active)
    k.clocks.fence(np.asarray(lanes.all(axis=2)), np.asarray(lanes.any(axis=2)))


def _warp_sync(k: Blocks, s: ir.WarpSync, env: dict[str, Value], active: Active) -> None:
    k.clocks.release(*np.nonzero(k.whole_warps(active, "warp barrier")))


def _return(k: Blocks, s: ir.Return, env: dict[str, Value], active: Active) -> Wait:
    k.gone |= active
    yield from ()


def _nothing(k: Blocks, s: ir.Stmt, env: dict[str, Value], active: Active) -> None:
    """`SetMaxRegs` does not change values."""


# control flow


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
        yield from k.run(s.body, env, active)
        if k.gone.any():
            active = active & ~k.gone
            if not active.any():
                return


def _divergent_for(k: Blocks, s: ir.For, env: dict[str, Value], active: Active, start: Any, stop: Any) -> Wait:
    at = np.array(k.spread(start), np.int64)
    while (inside := active & (at < stop) & ~k.gone).any():
        env[s.var] = at
        yield from k.run(s.body, env, inside)
        at = at + s.step


def _if(k: Blocks, s: ir.If, env: dict[str, Value], active: Active) -> Wait:
    taken = k.holds(env, s.where, active)
    if taken.any():
        yield from k.run(s.body, env, taken)
    rest = active & ~taken
    if s.orelse and rest.any():
        yield from k.run(s.orelse, env, rest)


def _role(k: Blocks, s: ir.Role, env: dict[str, Value], active: Active) -> Wait:
    warps = k.lanes.warp
    k.parallel += 1
    branches = []
    for (first, count), body in zip(s.warps, s.bodies, strict=True):
        mine = active & (warps >= first) & (warps < first + count)
        branches.append(k.run(body, dict(env), mine))
    while branches:
        before = k.steps
        branches = [b for b in branches if _advance(b)]
        if branches and k.steps == before:
            yield
    k.parallel -= 1


def _advance(branch: Wait) -> bool:
    """Run until it waits; False once it has ended."""
    try:
        next(branch)
    except StopIteration:
        return False
    return True


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


SIMPLE: dict[type, Callable[[Blocks, Any, dict[str, Value], Active], None]] = {
    ir.Let: _let,
    ir.Declare: _declare,
    ir.Set: _set,
    ir.Load: _load,
    ir.Store: _store,
    ir.Shuffle: _shuffle,
    ir.Atomic: _atomic,
    ir.Fence: _fence,
    ir.WarpSync: _warp_sync,
    ir.SetMaxRegs: _nothing,
}
WAITING: dict[type, Callable[[Blocks, Any, dict[str, Value], Active], Wait]] = {
    ir.For: _for,
    ir.If: _if,
    ir.Role: _role,
    ir.Return: _return,
    ir.Barrier: _barrier,
}
