"""ldmatrix, stmatrix, mma.sync and wgmma with the fragment layouts of the PTX ISA.

Sums are formed in float64 and rounded once; a tensor core truncates in a way that is not documented, so products agree
with the hardware to its accuracy and not bit for bit.  tf32 operands lose their low 13 bits, as the hardware does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.simulate.clocks import Array
from emmy_eq.codegen.simulate.faults import Fault
from emmy_eq.codegen.simulate.memory import Memory
from emmy_eq.codegen.simulate.state import Active, Blocks
from emmy_eq.codegen.simulate.tma import read_by_async_proxy, swizzled
from emmy_eq.codegen.simulate.units import Product
from emmy_eq.codegen.simulate.values import Value
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, itemsize

_LANE = np.arange(32)
_G, _Q = _LANE // 4, _LANE % 4  # "groupID" and "threadID in group" of the PTX ISA


# 8x8 matrices


def _rows(k: Blocks, s: ir.Ldmatrix | ir.Stmatrix, count: int, env: dict[str, Value], active: Active) -> tuple[Memory, Array, Array]:
    """The array, and of every 16-byte row that a lane points at: addresses and lane.  (warps * count * 8, elements)."""
    k.whole_warps(active, "ldmatrix or stmatrix")
    who = np.flatnonzero(active & (k.lanes.lane < 8 * count))
    return *k.locate(env, s.shared, s.offset, 16 // k.memory[s.shared].data.dtype.itemsize, who), who


def _ldmatrix(k: Blocks, s: ir.Ldmatrix, env: dict[str, Value], active: Active) -> None:
    count = len(s.names)
    memory, address, who = _rows(k, s, count, env, active)
    memory.note_read(address, who, k.lanes, k.clocks, k.outside)
    halves = np.ascontiguousarray(memory.data[address]).view(np.uint16).reshape(-1, count, 8, 8)
    if s.transpose:
        halves = halves.swapaxes(2, 3)
    pairs = halves[:, :, _G, 2 * _Q].astype(np.uint32) | halves[:, :, _G, 2 * _Q + 1].astype(np.uint32) << np.uint32(16)
    for i, name in enumerate(s.names):
        out = np.zeros(k.n, np.int32)
        out[active] = pairs[:, i].ravel().view(np.int32)
        env[name] = out
        k.touch(name)


def _stmatrix(k: Blocks, s: ir.Stmatrix, env: dict[str, Value], active: Active) -> None:
    count = len(s.values)
    memory, address, who = _rows(k, s, count, env, active)
    memory.note_write(address, who, k.lanes, k.clocks, k.outside)
    halves = np.zeros((int(active.sum()) // 32, count, 8, 8), np.uint16)
    for i, name in enumerate(s.values):
        pair = np.ascontiguousarray(k.spread(env[name])[active]).view(np.uint32).reshape(-1, 32)
        halves[:, i, _G, 2 * _Q], halves[:, i, _G, 2 * _Q + 1] = pair & np.uint32(0xFFFF), pair >> np.uint32(16)
    if s.transpose:
        halves = halves.swapaxes(2, 3)
    rows = np.ascontiguousarray(halves).reshape(-1, 8)
    memory.data[address] = rows.view(memory.data.dtype)


# mma.sync


def _elements(k: Blocks, env: dict[str, Value], names: tuple[str, ...], dtype: str, active: Active) -> Array:
    """Operand registers as float64 (warps, 32, registers, elements a register)."""
    packed = np.stack([np.ascontiguousarray(k.spread(env[n])[active]).view(np.uint32) for n in names], axis=1)
    if dtype == "tf32":
        return truncated(packed.view(np.float32)).astype(np.float64).reshape(-1, 32, len(names), 1)
    return packed.view(DTYPES[dtype]).astype(np.float64).reshape(-1, 32, len(names), 2)


def truncated(x: Array) -> Array:
    """f32 as a tf32 operand is read."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _fragment_a(elements: Array) -> Array:
    """(warps, 16, k): register r holds row g + 8 (r % 2), columns of k half r // 2."""
    warps, _, registers, per = elements.shape
    out = np.zeros((warps, 16, 4 * per * registers // 2))
    for r in range(registers):
        for e in range(per):
            out[:, _G + 8 * (r % 2), 4 * per * (r // 2) + per * _Q + e] = elements[:, :, r, e]
    return out


def _fragment_b(elements: Array) -> Array:
    """(warps, k, 8): register r holds column g, rows of k half r."""
    warps, _, registers, per = elements.shape
    out = np.zeros((warps, 4 * per * registers, 8))
    for r in range(registers):
        for e in range(per):
            out[:, 4 * per * r + per * _Q + e, _G] = elements[:, :, r, e]
    return out


def _mma(k: Blocks, s: ir.Mma, env: dict[str, Value], active: Active) -> None:
    k.whole_warps(active, "mma")
    a = _fragment_a(_elements(k, env, s.a, s.dtype, active))
    b = _fragment_b(_elements(k, env, s.b, s.dtype, active))
    product = a @ b
    for r, name in enumerate(s.d):
        part = product[:, _G + 8 * (r // 2), 2 * _Q + r % 2].ravel()
        env[name][active] = (env[name][active].astype(np.float64) + part).astype(np.float32)


# wgmma


def _fence(k: Blocks, s: ir.WgmmaFence, env: dict[str, Value], active: Active) -> None:
    if k.wgmma.touched is not None:
        k.wgmma.touched.clear()


def _warpgroups(k: Blocks, active: Active) -> list[int]:
    full = k.whole_warps(active, "wgmma")[0]
    groups = [g for g in range(-(-k.warps // 4)) if full[4 * g : 4 * g + 4].any()]
    if any(not full[4 * g : 4 * g + 4].all() or 4 * g + 4 > k.warps for g in groups):
        raise Fault("divergence", "wgmma in some warps of a warpgroup only")
    return groups


def _operand(
    k: Blocks, env: dict[str, Value], tile: tuple[str, Idx], group: int, shape: tuple[int, int], strides: tuple[int, int], mn_major: bool
) -> tuple[Memory, Array]:
    """The array and the addresses (rows, k) of a 128-byte swizzled operand as its descriptor reaches them.

    K-major: rows of 128 bytes, 8 of them an atom, atoms ``strides[1]`` (SBO) bytes apart.  MN-major: a row of 128 bytes
    holds 64 elements of one k; 8 k are an atom, SBO to the next 8 k, ``strides[0]`` (LBO) to the next 64 rows.
    """
    memory = k.memory[tile[0]]
    size = memory.data.dtype.itemsize
    found = k.spread(k.index(env, tile[1]))[128 * group : 128 * group + 128]
    if (found != found[0]).any():
        raise Fault("divergence", f"{tile[1]} differs within a warpgroup")
    start = k.base[tile[0]] + int(found[0]) * size
    if start % 16:
        raise Fault("alignment", f"{tile[0]}[{found[0]}] is not at a multiple of 16 bytes")
    row, column = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
    if mn_major:
        byte = row // 64 * strides[0] + column // 8 * strides[1] + column % 8 * 128 + row % 64 * size
    else:
        byte = row // 8 * strides[1] + row % 8 * 128 + column * size
    offset = (swizzled(start + byte, 128) - k.base[tile[0]]) // size
    who = np.full(offset.size, 128 * group)
    return memory, memory.locate(offset.ravel(), 1, who, k.lanes).reshape(shape)


def _shared_operand(memory: Memory, address: Array, dtype: str) -> Array:
    found = memory.data[address]
    return (truncated(found) if dtype == "tf32" else found).astype(np.float64)


def _wgmma(k: Blocks, s: ir.Wgmma, env: dict[str, Value], active: Active) -> None:
    unit = k.wgmma
    fragment = walk.fragment(s)
    dirty = sorted((unit.touched or set()) & {*s.d, *fragment})
    if dirty:
        raise Fault("protocol", f"register {dirty[0]} was written after the last wgmma.fence")
    for group in _warpgroups(k, active):
        _product(k, s, env, group, fragment)


def _product(k: Blocks, s: ir.Wgmma, env: dict[str, Value], group: int, fragment: tuple[str, ...]) -> None:
    depth = 32 // itemsize("f32" if s.dtype == "tf32" else s.dtype)
    mine = np.zeros(k.n, np.bool_)
    mine[128 * group : 128 * group + 128] = True
    record = k.wgmma.open.setdefault(group, Product())
    memory, address = _operand(k, env, s.b, group, (s.n, depth), (s.leading[1], s.stride[1]), s.transpose_b)
    reads = [(memory, address)]
    b = _shared_operand(memory, address, s.dtype)
    if fragment:
        a = _fragment_a(_elements(k, env, fragment, s.dtype, mine)).reshape(64, depth)
    else:
        assert isinstance(s.a[1], Idx)
        memory, address = _operand(k, env, (str(s.a[0]), s.a[1]), group, (64, depth), (s.leading[0], s.stride[0]), s.transpose_a)
        reads.append((memory, address))
        a = _shared_operand(memory, address, s.dtype)
    for source, at in reads:
        unique = np.unique(at)[None, :]
        read_by_async_proxy(k, source, unique, np.array([128 * group]))
        record.reads.append((source, unique))
    keep = bool(k.spread(k.get(env, s.scale_d))[128 * group])
    _accumulate(k, s, env, mine, a @ b.T, keep, record)


def _accumulate(k: Blocks, s: ir.Wgmma, env: dict[str, Value], mine: Active, product: Array, keep: bool, record: Product) -> None:
    """d = product (+ d): what the registers will hold at the wait; until then they are NaN."""
    unit = k.wgmma
    row, column = (16 * np.arange(4)[:, None] + _G).ravel(), np.tile(2 * _Q, 4)
    for r, name in enumerate(s.d):
        register = env[name]
        part = product[row + 8 * (r // 2 % 2), 8 * (r // 4) + column + r % 2]
        values = unit.values.setdefault(id(register), np.empty_like(register))
        running = any(id(register) in p.registers for p in [record, *unit.groups.get(int(np.argmax(mine)) // 128, [])])
        before = (values if running else register)[mine].astype(np.float64) if keep else 0.0
        values[mine] = (before + part).astype(np.float32)
        record.registers[id(register)] = register
        register[mine] = np.nan


def _commit(k: Blocks, s: ir.WgmmaCommit, env: dict[str, Value], active: Active) -> None:
    for group in _warpgroups(k, active):
        k.wgmma.groups.setdefault(group, []).append(k.wgmma.open.pop(group, Product()))


def _wait(k: Blocks, s: ir.WgmmaWait, env: dict[str, Value], active: Active) -> None:
    """Accumulators land; the reads count as warp 0's of the warpgroup, ordered before what it releases next: its first thread
    may free the stage at once, as the hardware's wait is for the whole warpgroup."""
    unit = k.wgmma
    for group in _warpgroups(k, active):
        pending = unit.groups.get(group, [])
        ended = max(0, len(pending) - s.pending)
        done, left = pending[:ended], pending[ended:]
        unit.groups[group] = left
        here = slice(128 * group, 128 * group + 128)
        later = [*left, unit.open.get(group, Product())]
        for product in done:
            for key, register in product.registers.items():
                if not any(key in p.registers for p in later):
                    register[here] = unit.values[key][here]
            for memory, address in product.reads:
                memory.read_done(address, 4 * group, int(k.clocks.known[0, 4 * group, 4 * group]))
        for memory, address in (r for p in left for r in p.reads):
            memory.note_read(address, np.array([128 * group]), k.lanes, k.clocks, k.outside, flight=True)


HANDLERS: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], None]] = {
    ir.Ldmatrix: _ldmatrix,
    ir.Stmatrix: _stmatrix,
    ir.Mma: _mma,
    ir.WgmmaFence: _fence,
    ir.Wgmma: _wgmma,
    ir.WgmmaCommit: _commit,
    ir.WgmmaWait: _wait,
}
