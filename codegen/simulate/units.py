"""What the asynchronous units of the running blocks have in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from emmy_eq.codegen.simulate.clocks import Array
from emmy_eq.codegen.simulate.faults import Fault
from emmy_eq.codegen.simulate.memory import Memory


@dataclass(frozen=True, slots=True)
class Copy:
    """Values under way to addresses (threads, width) of a shared array, by the threads that asked for them."""

    memory: Memory
    address: Array
    data: Array
    who: Array

    def of(self, mine: Array) -> Copy:
        """The part that threads marked in ``mine`` (by flat thread number) asked for."""
        keep = mine[self.who]
        return self if keep.all() else Copy(self.memory, self.address[keep], self.data[keep], self.who[keep])


@dataclass(slots=True)
class Group:
    """Copies that were committed together; ``members`` marks the threads for which they have not landed yet."""

    members: Array
    copies: list[Copy]


@dataclass(slots=True)
class CopyUnit:
    """`CpAsync` copies: not yet committed, and in groups, oldest first."""

    open: list[Copy] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


@dataclass(slots=True)
class Mbarrier:
    """One mbarrier.  ``phase`` counts completed phases; ``bytes`` is what the copy engine still owes the current one."""

    count: int
    made_by: tuple[int, int]  # warp, and its time
    arrived: int = 0
    phase: int = 0
    bytes: int = 0
    clock: Array | None = None
    done: dict[int, Array] = field(default_factory=dict)
    boxes: list[tuple[Memory, Array, Array, int]] = field(default_factory=list)  # array, addresses, values, bytes

    def arrive(self, clock: Array, times: int) -> None:
        self.join(clock)
        self.arrived += times
        if self.arrived > self.count:
            raise Fault("protocol", f"{self.arrived} arrivals at an mbarrier of {self.count}")
        self.settle()

    def join(self, clock: Array) -> None:
        """Whoever waits for the current phase is ordered after what ``clock`` says."""
        self.clock = clock.copy() if self.clock is None else np.maximum(self.clock, clock)

    def settle(self) -> None:
        """Complete the phase if all have arrived and all bytes have."""
        if self.arrived == self.count and self.bytes == 0 and self.clock is not None:
            self.done[self.phase] = self.clock
            self.phase, self.arrived, self.clock = self.phase + 1, 0, None


@dataclass(slots=True, eq=False)
class StoreGroup:
    """TMA stores of one thread that have yet to read shared memory."""

    thread: int
    reads: list[tuple[Memory, Array]]


@dataclass(slots=True)
class BulkUnit:
    """TMA: mbarriers by array and index, and store groups."""

    mbarriers: dict[tuple[str, int], Mbarrier] = field(default_factory=dict)
    open: list[StoreGroup] = field(default_factory=list)
    groups: list[StoreGroup] = field(default_factory=list)


@dataclass(slots=True)
class Product:
    """One committed group of wgmma of a warpgroup: the accumulators it writes and the shared addresses it reads."""

    registers: dict[int, Array] = field(default_factory=dict)  # by id: the register itself
    reads: list[tuple[Memory, Array]] = field(default_factory=list)


@dataclass(slots=True)
class WgmmaUnit:
    """Accumulators in flight hold NaN; ``values`` keeps what they will be, by the register's id."""

    values: dict[int, Array] = field(default_factory=dict)
    open: dict[int, Product] = field(default_factory=dict)  # by warpgroup
    groups: dict[int, list[Product]] = field(default_factory=dict)
    touched: set[str] | None = None  # registers written since the last fence; None where no wgmma is used
