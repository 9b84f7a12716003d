"""Statements that no warp waits in: one function each, over all threads of the running blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir.show import literal
from emmy_eq.codegen.simulate import values
from emmy_eq.codegen.simulate.clocks import Array
from emmy_eq.codegen.simulate.faults import Fault
from emmy_eq.codegen.simulate.state import Active, Blocks
from emmy_eq.codegen.simulate.values import Value
from emmy_eq.ops import DTYPES


def _let(k: Blocks, s: ir.Let, env: dict[str, Value], active: Active) -> None:
    if s.op == "index":
        assert s.idx is not None
        env[s.name] = np.asarray(k.index(env, s.idx)).astype(DTYPES[s.dtype])
        return
    env[s.name] = values.apply(s.op, [k.get(env, a) for a in s.args], s.dtype)
    k.touch(s.name)


def _declare(k: Blocks, s: ir.Declare, env: dict[str, Value], active: Active) -> None:
    env[s.name] = np.array(k.spread(k.get(env, s.init)))
    k.touch(s.name)


def _set(k: Blocks, s: ir.Set, env: dict[str, Value], active: Active) -> None:
    value = values.apply(s.op, [k.get(env, a) for a in s.args], s.dtype)
    np.copyto(env[s.name], value, where=active)
    k.touch(s.name)


def _load(k: Blocks, s: ir.Load, env: dict[str, Value], active: Active) -> None:
    who = np.flatnonzero(k.holds(env, s.where, active))
    memory, address = k.locate(env, s.buffer, s.offset, len(s.names), who)
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
    who = np.flatnonzero(k.holds(env, s.where, active))
    memory, address = k.locate(env, s.buffer, s.offset, len(s.values), who)
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
    who = np.flatnonzero(k.holds(env, s.where, active))
    memory, address = k.locate(env, s.buffer, s.offset, 1, who)
    memory.note_write(address, who, k.lanes, k.clocks, k.outside, atomic=True)
    given = k.spread(k.get(env, s.value))[who]
    old = values.poison("i32", k.n)
    for f, a, value in zip(who, address[:, 0], given, strict=True):
        old[f] = memory.data[a]
        memory.data[a] += value
    env[s.name] = old
    if s.space == "global":
        k.outside.meet(who, k.lanes, k.clocks)


def _fence(k: Blocks, s: ir.Fence, env: dict[str, Value], active: Active) -> None:
    k.clocks.fence(k.by_warp(active))


def _warp_sync(k: Blocks, s: ir.WarpSync, env: dict[str, Value], active: Active) -> None:
    k.clocks.release(*np.nonzero(k.whole_warps(active, "warp barrier")))


def _nothing(k: Blocks, s: ir.Stmt, env: dict[str, Value], active: Active) -> None:
    """`SetMaxRegs` does not change values."""


HANDLERS: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], None]] = {
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
