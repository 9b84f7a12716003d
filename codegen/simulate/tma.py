"""mbarriers and the copy engine (TMA).

A box lands when a warp waits on its mbarrier, never before, and only warps that waited may read it.  The engine sees a
thread's ordinary stores only after a `ProxyFence`.  Shared addresses follow the swizzle of the hardware: within 8 rows of
``swizzle`` bytes, the number of a 16-byte chunk is xored with the number of its row (PTX ISA, "Swizzling modes").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.simulate.clocks import IN_FLIGHT, Array
from emmy_eq.codegen.simulate.faults import Fault
from emmy_eq.codegen.simulate.memory import Memory
from emmy_eq.codegen.simulate.state import Active, Blocks, Wait
from emmy_eq.codegen.simulate.units import Mbarrier, StoreGroup
from emmy_eq.codegen.simulate.values import Value
from emmy_eq.index import Idx
from emmy_eq.ops import itemsize


def swizzled(byte: Array, swizzle: int) -> Array:
    """Where a byte of a tile is; ``byte`` counts from an address that is a multiple of 8 rows of ``swizzle`` bytes."""
    if swizzle == 0:
        return byte
    chunks = swizzle // 16
    return np.asarray(byte ^ ((byte >> 7) % chunks) << 4)


# mbarriers


def _one(k: Blocks, env: dict[str, Value], x: Idx, who: Array) -> int:
    """The value of an index that must be the same for all threads that are here."""
    found = k.spread(k.index(env, x))[who]
    if (found != found[0]).any():
        raise Fault("divergence", f"{x} differs between threads")
    return int(found[0])


def _find(k: Blocks, array: str, x: Idx, env: dict[str, Value], who: Array) -> Mbarrier:
    at = _slot(k, array, x, env, who)
    bar = k.bulk.mbarriers.get((array, at))
    if bar is None:
        raise Fault("uninitialized", f"mbarrier {array}[{at}] is not initialized")
    warp, time = bar.made_by
    for w in np.unique(k.lanes.warp[who]):
        if w != warp and k.clocks.known[0, w, warp] < time:
            raise Fault("race", f"warp {w} uses mbarrier {array}[{at}], but nothing orders that after its initialization")
    return bar


def _slot(k: Blocks, array: str, x: Idx, env: dict[str, Value], who: Array) -> int:
    size = next(a.size for a in k.kernel.shared if a.name == array)
    at = _one(k, env, x, who)
    if not 0 <= at < size:
        raise Fault("bounds", f"{array}[{at}]; there are {size} mbarriers")
    return at


def _arrival_clock(k: Blocks, active: Active) -> Array:
    """What an arrival hands on: all that a whole warp did; of a lone lane, what was ordered before it (so a lane that arrives
    for its warp needs a `WarpSync` first)."""
    lanes = k.by_warp(active)
    b, w = np.nonzero(lanes.all(axis=2))
    k.clocks.release(b, w)
    b, w = np.nonzero(lanes.any(axis=2))
    return np.asarray(k.clocks.known[b, w].max(axis=0))


def _init(k: Blocks, s: ir.MbarInit, env: dict[str, Value], active: Active) -> None:
    who = np.flatnonzero(active)
    at = _slot(k, s.array, s.index, env, who)
    if len(who) != 1:
        raise Fault("race", f"{len(who)} threads initialize mbarrier {s.array}[{at}]")
    warp = int(k.lanes.warp[who[0]])
    k.bulk.mbarriers[s.array, at] = Mbarrier(s.count, (warp, int(k.clocks.time[0, warp])))


def _expect(k: Blocks, s: ir.MbarExpect, env: dict[str, Value], active: Active) -> None:
    who = np.flatnonzero(active)
    bar = _find(k, s.array, s.index, env, who)
    bar.bytes += s.bytes * len(who)
    bar.arrive(_arrival_clock(k, active), len(who))
    k.steps += 1


def _arrive(k: Blocks, s: ir.MbarArrive, env: dict[str, Value], active: Active) -> None:
    who = np.flatnonzero(active)
    _find(k, s.array, s.index, env, who).arrive(_arrival_clock(k, active), len(who))
    k.steps += 1


def _wait(k: Blocks, s: ir.MbarWait, env: dict[str, Value], active: Active) -> Wait:
    who = np.flatnonzero(active)
    bar = _find(k, s.array, s.index, env, who)
    parity = _one(k, env, s.parity, who) & 1

    def ready() -> bool:
        if bar.phase & 1 == parity:
            _land(k, bar)
        return bar.phase & 1 != parity

    yield from k.wait(s, ready)
    if bar.phase == 0:
        return
    b, w = np.nonzero(k.by_warp(active).any(axis=2))
    k.clocks.known[b, w] = np.maximum(k.clocks.known[b, w], bar.done[bar.phase - 1])


def _land(k: Blocks, bar: Mbarrier) -> None:
    """The copy engine finishes what it owes this mbarrier."""
    for memory, address, data, size in bar.boxes:
        k.clocks.engine_time += 1
        memory.land(address, data, np.array([0]), np.array([k.clocks.engine]), k.clocks.engine_time)
        clock = np.zeros_like(k.clocks.known[0, 0])
        clock[k.clocks.engine] = k.clocks.engine_time[0]
        bar.join(clock)
        bar.bytes -= size
    bar.boxes = []
    bar.settle()


# boxes


def _issuers(k: Blocks, active: Active) -> list[Array]:
    """The threads that ask, each for its own box."""
    who = np.flatnonzero(active)
    if len(np.unique(k.lanes.warp[who])) != len(who):
        raise Fault("protocol", "several threads of a warp ask for a box")
    return [who[i : i + 1] for i in range(len(who))]


def _box(k: Blocks, m: ir.TensorMap, at: tuple[Idx, ...], env: dict[str, Value], who: Array) -> tuple[Array, Array]:
    """Of every element of the box, innermost first: its offset in the buffer, and whether it lies inside the tensor."""
    offset, inside = np.zeros((), np.int64), np.ones((), np.bool_)
    for x, extent, stride, size in zip(at, m.shape, m.strides, m.box, strict=True):
        i = _one(k, env, x, who) + np.arange(size)
        offset = np.add.outer(i * stride, offset) if offset.ndim else i * stride + offset
        inside = np.logical_and.outer((i >= 0) & (i < extent), inside) if inside.ndim else (i >= 0) & (i < extent)
    return m.start + offset.ravel(), inside.ravel()


def _tile(k: Blocks, m: ir.TensorMap, memory: Memory, start: int, count: int, who: Array) -> Array:
    """Addresses (1, count) in a shared array of the box's elements, in the box's order."""
    size = itemsize(m.dtype)
    unit = 8 * m.swizzle if m.swizzle else 128
    if (k.base[memory.name] + start * size) % unit:
        raise Fault("alignment", f"{memory.name}[{start}] is not at a multiple of {unit} bytes")
    memory.locate(np.array([start, start + count - 1]), 1, np.repeat(who, 2), k.lanes)
    return (start + swizzled(np.arange(count) * size, m.swizzle) // size)[None, :]


def _load(k: Blocks, s: ir.TmaLoad, env: dict[str, Value], active: Active) -> None:
    for who in _issuers(k, active):
        _load_box(k, s, env, who)
    k.steps += 1


def _load_box(k: Blocks, s: ir.TmaLoad, env: dict[str, Value], who: Array) -> None:
    m = k.maps[s.map]
    bar = _find(k, s.array, s.index, env, who)
    offset, inside = _box(k, m, s.coordinates, env, who)
    source, target = k.memory[m.buffer], k.memory[s.shared]
    found = source.locate(offset[inside], 1, np.repeat(who, inside.sum()), k.lanes)
    source.note_read(found.T, who, k.lanes, k.clocks, k.outside)
    data = np.zeros((1, len(offset)), target.data.dtype)
    data[0, inside] = source.data[found[:, 0]]
    address = _tile(k, m, target, _one(k, env, s.to, who), len(offset), who)
    target.note_write(address, who, k.lanes, k.clocks, k.outside)
    target.take_flight(address, copy_engine=True)
    bar.boxes.append((target, address, data, data.nbytes))


def _store(k: Blocks, s: ir.TmaStore, env: dict[str, Value], active: Active) -> None:
    for who in _issuers(k, active):
        _store_box(k, s, env, who)


def _store_box(k: Blocks, s: ir.TmaStore, env: dict[str, Value], who: Array) -> None:
    m = k.maps[s.map]
    offset, inside = _box(k, m, s.coordinates, env, who)
    source, target = k.memory[s.shared], k.memory[m.buffer]
    address = _tile(k, m, source, _one(k, env, s.source, who), len(offset), who)
    read_by_async_proxy(k, source, address, who)
    found = target.locate(offset[inside], 1, np.repeat(who, inside.sum()), k.lanes)
    target.note_write(found.T, who, k.lanes, k.clocks, k.outside)
    target.data[found[:, 0]] = source.data[address[0, inside]]
    mine = [g for g in k.bulk.open if g.thread == who[0]]
    group = mine[0] if mine else StoreGroup(int(who[0]), [])
    group.reads.append((source, address))
    k.bulk.open += [] if mine else [group]


def read_by_async_proxy(k: Blocks, memory: Memory, address: Array, who: Array) -> None:
    """A read of shared memory by TMA or wgmma for thread ``who``, in flight until its wait."""
    a = address.ravel()
    writer = memory.writer[a]
    plain = (writer >= 0) & ~memory.proxy[a] & (memory.write_time[a] != IN_FLIGHT)
    hidden = plain & (memory.write_time[a] > k.clocks.proxied[0, np.maximum(writer, 0) >> 5])
    if hidden.any():
        i = int(np.argmax(hidden))
        raise Fault("race", f"{memory.name}[{a[i]}] was stored by thread {writer[i]} with no proxy fence before the async unit reads it")
    memory.note_read(address, who, k.lanes, k.clocks, k.outside, flight=True)


def _commit(k: Blocks, s: ir.TmaCommit, env: dict[str, Value], active: Active) -> None:
    mine = [g for g in k.bulk.open if active[g.thread]]
    k.bulk.groups += mine
    k.bulk.open = [g for g in k.bulk.open if not active[g.thread]]


def _store_wait(k: Blocks, s: ir.TmaWait, env: dict[str, Value], active: Active) -> None:
    for thread in sorted({g.thread for g in k.bulk.groups if active[g.thread]}):
        mine = [g for g in k.bulk.groups if g.thread == thread]
        done = mine[: max(0, len(mine) - s.pending)]
        warp = int(k.lanes.warp[thread])
        for memory, address in (r for g in done for r in g.reads):
            memory.read_done(address, warp, int(k.clocks.time[0, warp]))
        k.bulk.groups = [g for g in k.bulk.groups if g not in done]


def _proxy_fence(k: Blocks, s: ir.ProxyFence, env: dict[str, Value], active: Active) -> None:
    lanes = k.by_warp(active)
    k.clocks.proxy_fence(np.asarray(lanes.all(axis=2)), np.asarray(lanes.any(axis=2)))


def finish(k: Blocks) -> None:
    """At the end of a block nothing may still be on its way out of its shared memory."""
    if k.bulk.open or k.bulk.groups:
        raise Fault("protocol", "the block ends while a TMA store still reads its shared memory")


HANDLERS: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], None]] = {
    ir.MbarInit: _init,
    ir.MbarExpect: _expect,
    ir.MbarArrive: _arrive,
    ir.TmaLoad: _load,
    ir.TmaStore: _store,
    ir.TmaCommit: _commit,
    ir.TmaWait: _store_wait,
    ir.ProxyFence: _proxy_fence,
}
WAITING: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], Wait]] = {ir.MbarWait: _wait}
