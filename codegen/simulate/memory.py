"""Memory with a record of every address's last accesses, so that two unordered ones are found (as FastTrack does, with the
warp in the thread's place; Flanagan and Freund, PLDI 2009)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emmy_eq.codegen.simulate.clocks import IN_FLIGHT, Array, Clocks
from emmy_eq.codegen.simulate.faults import Fault

_LOG = 256  # reads kept before they are settled


@dataclass(frozen=True, slots=True)
class Lanes:
    """Coordinates of the threads of the blocks that run together, by flat thread number."""

    blocks: int
    threads: int
    block: Array  # among those that run together
    thread: Array  # in its block
    warp: Array
    lane: Array
    grid: Array  # the number in the grid of each block that runs together

    @staticmethod
    def of(grid: Array, threads: int) -> Lanes:
        flat = np.arange(len(grid) * threads)
        thread = flat % threads
        return Lanes(len(grid), threads, flat // threads, thread, thread // 32, thread % 32, grid)


class Outside:
    """What blocks have shown each other: an atomic on global memory hands on what its block has fenced, to atomics that come later
    (``sequence`` numbers them)."""

    def __init__(self, blocks: int, warps: int) -> None:
        self.sequence = 0
        self.released = np.zeros((blocks, warps + 2), np.int32)  # times of a block's warps
        self.by_lane = np.zeros((blocks, 32 * warps), np.int32)  # of threads that fenced for themselves
        self.order = np.zeros(blocks, np.int32)  # the atomic that last released something new
        self.last = np.zeros(blocks, np.int32)  # the last atomic

    def meet(self, who: Array, lanes: Lanes, clocks: Clocks) -> None:
        """An atomic by threads ``who``, one after the other."""
        b, w, thread = lanes.block[who], lanes.warp[who], lanes.thread[who]
        grid = lanes.grid[b]
        before = self.released[grid], self.by_lane[grid]
        np.maximum.at(self.released, grid, clocks.fenced[b, w])
        np.maximum.at(self.by_lane, grid, clocks.lane_joined[b])
        self.by_lane[grid, thread] = clocks.lane_fenced[b, thread]
        new = (self.released[grid] != before[0]).any(axis=1) | (self.by_lane[grid] != before[1]).any(axis=1)
        number = self.sequence + 1 + np.arange(len(who), dtype=np.int32)
        self.sequence += len(who)
        self.order[grid[new]] = number[new]
        self.last[grid] = number
        np.maximum.at(clocks.known[:, :, clocks.outside], (b, w), 2 * number)

    def shows(self, block: Array, atomic: Array, seen: Array) -> Array:
        """Whether who has ``seen`` (see `Clocks`) is ordered after what ``block`` released: after its atomic for a value that
        an atomic left, after that and a fence for any other (PTX ISA, memory model)."""
        return np.asarray(np.where(atomic, self.last[block] < seen // 2, (self.order[block] < seen // 2) & (seen % 2 == 1)))


class Memory:
    """One array.  Shared memory holds a copy a block: ``stride`` is its size then, and 0 for global memory.

    Most accesses to shared memory are ordered by a barrier after all that came before, which the latest times of each warp show;
    only the others are looked up by address.  Reads are logged until a write asks for them.
    """

    def __init__(self, name: str, data: Array, size: int, stride: int, warps: int, tracked: bool) -> None:
        self.name, self.data, self.size, self.stride, self.tracked = name, data, size, stride, tracked
        self.shared = stride != 0
        n = len(data) if tracked else 0
        self.writer = np.full(n, -1, np.int32)  # thread in its block
        self.writer_block = np.full(n, -1, np.int32)  # in the grid
        self.write_time = np.zeros(n, np.int32)
        self.atomic = np.zeros(n, np.bool_)
        self.proxy = np.zeros(n, np.bool_)  # written by the copy engine
        self.read_time = np.zeros((n, warps), np.int32)
        self.reader = np.full((n, warps), -1, np.int8)  # lane; -2: several
        self.reader_block = np.full(n, -1, np.int32)  # -2: several
        blocks = len(data) // stride if stride else 0
        self.latest_write = np.zeros((blocks, warps + 2), np.int32)  # by block and source
        self.latest_read = np.zeros((blocks, warps), np.int32)
        self.flying = 0  # addresses that asynchronous copies own
        self.log: list[tuple[Array, Array, Array]] = []  # reads: addresses, threads, times

    def locate(self, offset: Array, width: int, who: Array, lanes: Lanes) -> Array:
        """Flat addresses (threads, width) of a vector access, or a fault."""
        bad = (offset < 0) | (offset > self.size - width)
        if bad.any():
            i = int(np.argmax(bad))
            raise Fault("bounds", f"{self.name}[{offset[i]}] by {_thread(who[i], lanes)}; the array has {self.size} elements")
        if width > 1 and (odd := offset % width != 0).any():
            i = int(np.argmax(odd))
            raise Fault("alignment", f"{self.name}[{offset[i]}] by {_thread(who[i], lanes)} is not a multiple of {width}")
        base = offset + lanes.block[who] * self.stride if self.shared else offset
        return base[:, None] + np.arange(width) if width > 1 else base[:, None]

    def note_read(self, address: Array, who: Array, lanes: Lanes, clocks: Clocks, outside: Outside, flight: bool = False) -> None:
        """Check a read of ``address`` (threads, width) by threads ``who`` and record it; ``flight``: it ends at `read_done`."""
        if not self.tracked:
            return
        b, w = lanes.block[who], lanes.warp[who]
        if not self.shared or self.flying or _behind(self.latest_write, clocks.known)[b, w].any():
            self._after_write(address.ravel(), np.repeat(who, address.shape[1]), lanes, clocks, outside, "reads")
        now = np.full(len(who), IN_FLIGHT, np.int32) if flight else clocks.time[b, w]
        if not self.shared:
            self._record_read(address, who, now, lanes)
            return
        self.latest_read[b, w] = np.maximum(now, self.latest_read[b, w])
        self.log.append((address, who, now))
        if flight or len(self.log) > _LOG:
            self._settle_reads(lanes, clocks)

    def _settle_reads(self, lanes: Lanes, clocks: Clocks) -> None:
        """Forget the logged reads if every warp is ordered after them, else record them by address."""
        if _behind(self.latest_read, clocks.known).any():
            for address, who, now in self.log:
                self._record_read(address, who, now, lanes)
        self.log.clear()

    def _record_read(self, address: Array, who: Array, now: Array, lanes: Lanes) -> None:
        width = address.shape[1]
        a, f, time = address.ravel(), np.repeat(who, width), np.repeat(now, width)
        w, lane = lanes.warp[f], lanes.lane[f]
        several = (self.read_time[a, w] == time) & (self.reader[a, w] != lane)
        self.read_time[a, w] = np.maximum(time, self.read_time[a, w])
        self.reader[a, w] = np.where(several, -2, lane)
        crowd = self.reader[a, w] != np.where(several, -2, lane)
        self.reader[a[crowd], w[crowd]] = -2
        if not self.shared:
            here, before = lanes.grid[lanes.block[f]], self.reader_block[a]
            self.reader_block[a] = np.where((before == -1) | (before == here), here, -2)

    def read_done(self, address: Array, warp: int, time: int) -> None:
        """An asynchronous unit has read these addresses, for a warp, at that warp's ``time``."""
        self.read_time[address.ravel(), warp] = time

    def note_write(self, address: Array, who: Array, lanes: Lanes, clocks: Clocks, outside: Outside, atomic: bool = False) -> None:
        """Check a write and record it; ``atomic`` writes are not in conflict with one another."""
        if not self.tracked:
            return
        a, f = address.ravel(), np.repeat(who, address.shape[1])
        block, w = lanes.block[who], lanes.warp[who]
        if not self.shared or self.flying or _behind(self.latest_write, clocks.known)[block, w].any():
            self._after_write(a, f, lanes, clocks, outside, "writes", atomic)
        if not self.shared:
            self._after_reads(a, f, lanes, clocks)
        else:
            if _behind(self.latest_read, clocks.known)[block, w].any():
                self._settle_reads(lanes, clocks)
                self._after_reads(a, f, lanes, clocks)
            self.latest_write[block, w] = clocks.time[block, w]
        t, b = lanes.thread[f], lanes.grid[lanes.block[f]]
        self.writer[a], self.writer_block[a] = t, b
        self.write_time[a] = clocks.time[lanes.block[f], lanes.warp[f]]
        self.atomic[a], self.proxy[a] = atomic, False
        twice = (self.writer[a] != t) | (self.writer_block[a] != b)
        if twice.any() and not atomic:
            i = int(np.argmax(twice))
            self._race(a[i], f[i], lanes, "writes", f"thread {self.writer[a[i]]} of block {self.writer_block[a[i]]} writes it too")

    def take_flight(self, address: Array, copy_engine: bool) -> None:
        """An asynchronous copy owns these addresses until `land`."""
        self.flying += address.size
        self.write_time[address] = IN_FLIGHT
        self.proxy[address] = copy_engine

    def land(self, address: Array, data: Array, block: Array, source: Array, time: Array) -> None:
        """The copy is done, as a write by ``source`` (a warp or the copy engine) at ``time``; one of each a row of addresses."""
        self.data[address] = data
        self.flying -= address.size
        self.write_time[address] = time[:, None]
        np.maximum.at(self.latest_write, (block, source), time)

    def _after_write(self, a: Array, f: Array, lanes: Lanes, clocks: Clocks, outside: Outside, verb: str, atomic: bool = False) -> None:
        writer = self.writer[a]
        if (writer < 0).all():
            return
        time, b, w = self.write_time[a], lanes.block[f], lanes.warp[f]
        source = np.where(self.proxy[a], clocks.engine, np.minimum(np.maximum(writer, 0) >> 5, clocks.engine))
        ordered = (time <= clocks.known[b, w, source]) | ((writer == lanes.thread[f]) & (time != IN_FLIGHT) & ~self.proxy[a])
        if not self.shared:
            here = self.writer_block[a] == lanes.grid[b]
            block, thread = np.maximum(self.writer_block[a], 0), np.clip(writer, 0, lanes.threads - 1)
            visible = self.atomic[a] | (time <= np.maximum(outside.released[block, source], outside.by_lane[block, thread]))
            seen = clocks.known[b, w, clocks.outside]
            ordered = np.where(here, ordered, visible & outside.shows(block, self.atomic[a], seen))
        if atomic:
            ordered |= self.atomic[a]
        bad = (writer >= 0) & ~ordered
        if bad.any():
            i = int(np.argmax(bad))
            state = "an asynchronous copy to it is in flight" if time[i] == IN_FLIGHT else self._who_wrote(a[i])
            self._race(a[i], f[i], lanes, verb, state)

    def _who_wrote(self, a: int) -> str:
        who = "the copy engine" if self.proxy[a] else f"thread {self.writer[a]}"
        return f"{who} of block {self.writer_block[a]} wrote it and nothing orders the two"

    def _after_reads(self, a: Array, f: Array, lanes: Lanes, clocks: Clocks) -> None:
        b, w = lanes.block[f], lanes.warp[f]
        late = self.read_time[a] > clocks.known[b, w, : self.read_time.shape[1]]
        if not self.shared:
            foreign = (self.reader_block[a] != -1) & (self.reader_block[a] != lanes.grid[b])
            late = late | foreign[:, None]
        if not late.any():
            return
        rows = np.arange(len(a))
        mine = (self.reader[a, w] == lanes.lane[f]) & (self.read_time[a, w] != IN_FLIGHT)
        late[rows, w] &= ~mine
        bad = late.any(axis=1)
        if bad.any():
            i = int(np.argmax(bad))
            self._race(a[i], f[i], lanes, "writes", f"warp {int(np.argmax(late[i]))} has read it and nothing orders the two")

    def _race(self, a: int, f: int, lanes: Lanes, verb: str, state: str) -> None:
        offset = a % self.stride if self.shared else a
        raise Fault("race", f"{_thread(f, lanes)} {verb} {self.name}[{offset}], but {state}")


def _behind(latest: Array, known: Array) -> Array:
    """(blocks, warps): whether a warp is not ordered after all accesses of the ``latest`` times (blocks, sources)."""
    return np.asarray((latest[:, None, :] > known[:, :, : latest.shape[1]]).any(axis=2))


def _thread(f: int, lanes: Lanes) -> str:
    return f"thread {lanes.thread[f]} of block {lanes.grid[lanes.block[f]]}"
