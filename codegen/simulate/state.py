"""State of the blocks that run together: registers, memory, clocks, and the units that work asynchronously."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.kernel_ir.show import literal, show_statement
from emmy_eq.codegen.kernel_ir.verify import shared_layout
from emmy_eq.codegen.simulate import values
from emmy_eq.codegen.simulate.clocks import Array, Clocks
from emmy_eq.codegen.simulate.faults import Fault, KernelFault
from emmy_eq.codegen.simulate.memory import Lanes, Memory, Outside
from emmy_eq.codegen.simulate.units import BulkUnit, CopyUnit, WgmmaUnit
from emmy_eq.codegen.simulate.values import Value
from emmy_eq.index import Idx

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
        self.base = shared_layout(kernel)[0]  # bytes
        self.maps = {m.name: m for m in kernel.maps}
        self.copies = CopyUnit()
        self.bulk = BulkUnit()
        matrices = any(isinstance(s, ir.Wgmma) for s in walk.statements(kernel.body))
        self.wgmma = WgmmaUnit(touched=set() if matrices else None)

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

    def locate(self, env: dict[str, Value], buffer: str, offset: Idx, width: int, who: Array) -> tuple[Memory, Array]:
        """The array, and the addresses (threads, width) in it that threads ``who`` access."""
        memory = self.memory[buffer]
        return memory, memory.locate(self.spread(self.index(env, offset))[who], width, who, self.lanes)

    def holds(self, env: dict[str, Value], where: ir.Predicate, active: Active) -> Active:
        """The active threads for which the predicate is true."""
        for c in where:
            if isinstance(c, ir.Elect):
                active = active & self.elected(active)
            elif isinstance(c, ir.AnyLane):
                self.whole_warps(active, "a vote")
                votes = self.by_warp(active & env[c.register]).any(axis=2)
                active = active & np.repeat(votes.reshape(-1), 32)
            elif isinstance(c, ir.Test):
                active = active & (env[c.register] != c.negate)
            else:
                active = active & _COMPARE[c.op](self.index(env, c.left), self.index(env, c.right))
        return active

    def elected(self, active: Active) -> Active:
        self.whole_warps(active, "elect")
        return np.asarray(self.lanes.lane == 0)

    def touch(self, register: str) -> None:
        """wgmma reads a register only after a fence that follows its last write."""
        if self.wgmma.touched is not None:
            self.wgmma.touched.add(register)

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

    def fault(self, f: Fault) -> KernelFault:
        where = show_statement(self.statement) if self.statement is not None else "start"
        return KernelFault(self.kernel.name, where, f.kind, f.why)

    def wait(self, s: ir.Stmt, ready: Callable[[], bool]) -> Wait:
        """Let others run until ``ready``."""
        self.steps += 1
        while not ready():
            yield
            self.statement = s
        self.steps += 1
