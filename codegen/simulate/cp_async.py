"""`cp.async`: a copy lands when the thread that asked for it waits, never before; until then its target is in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.simulate.state import Active, Blocks
from emmy_eq.codegen.simulate.units import Copy, Group
from emmy_eq.codegen.simulate.values import Value


def _copy(k: Blocks, s: ir.CpAsync, env: dict[str, Value], active: Active) -> None:
    who, reads = np.flatnonzero(active), k.holds(env, s.where, active)
    reader = np.flatnonzero(reads)
    source, found = k.locate(env, s.buffer, s.offset, s.count, reader)
    source.note_read(found, reader, k.lanes, k.clocks, k.outside)
    target, address = k.locate(env, s.shared, s.to, s.count, who)
    data = np.zeros((len(who), s.count), target.data.dtype)
    data[reads[who]] = source.data[found]
    target.note_write(address, who, k.lanes, k.clocks, k.outside)
    target.take_flight(address, copy_engine=False)
    k.copies.open.append(Copy(target, address, data, who))


def _commit(k: Blocks, s: ir.CpAsyncCommit, env: dict[str, Value], active: Active) -> None:
    mine, rest = [c.of(active) for c in k.copies.open], [c.of(~active) for c in k.copies.open]
    k.copies.open = [c for c in rest if len(c.who)]
    k.copies.groups.append(Group(active.copy(), [c for c in mine if len(c.who)]))


def _wait(k: Blocks, s: ir.CpAsyncWait, env: dict[str, Value], active: Active) -> None:
    newer = np.zeros(k.n, np.int64)  # groups of each thread that came later
    for group in reversed(k.copies.groups):
        landing = group.members & active & (newer >= s.pending)
        newer += group.members
        if landing.any():
            for copy in group.copies:
                _land(k, copy.of(landing))
            group.members = group.members & ~landing
    k.copies.groups = [g for g in k.copies.groups if g.members.any()]


def _land(k: Blocks, copy: Copy) -> None:
    b, w = k.lanes.block[copy.who], k.lanes.warp[copy.who]
    copy.memory.land(copy.address, copy.data, b, w, k.clocks.time[b, w])


HANDLERS: Mapping[type, Callable[[Blocks, Any, dict[str, Value], Active], None]] = {
    ir.CpAsync: _copy,
    ir.CpAsyncCommit: _commit,
    ir.CpAsyncWait: _wait,
}
