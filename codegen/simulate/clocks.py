"""Who is ordered before whom: a vector clock a warp.

A warp's *time* counts its synchronizations.  ``known[b, w, v] = t`` says that in block b all that warp v did up to its time
t is ordered before what warp w does next.  Lanes of one warp are ordered by `WarpSync` and barriers alone.  Two more columns
stand for the copy engine (writes of TMA boxes) and for other blocks: 2 * n after the n-th atomic on global memory, and one
more after a fence that follows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

IN_FLIGHT = np.int32(2**31 - 1)  # the time of an access that an asynchronous unit has not finished


class Clocks:
    def __init__(self, blocks: int, warps: int) -> None:
        self.engine, self.outside = warps, warps + 1
        self.time = np.ones((blocks, warps), np.int32)
        self.known = np.zeros((blocks, warps, warps + 2), np.int32)
        self.fenced = np.zeros((blocks, warps, warps + 2), np.int32)  # what is visible to other blocks, as far as the warp knows
        self.lane_fenced = np.zeros((blocks, 32 * warps), np.int32)  # the time of each thread's own last fence
        self.lane_joined = np.zeros((blocks, 32 * warps), np.int32)  # the same, as of its warp's last synchronization
        self.proxied = np.zeros((blocks, warps), np.int32)  # up to when a warp's stores are visible to the async proxy
        self.engine_time = np.zeros(blocks, np.int32)

    def release(self, b: Any, w: Any) -> None:
        """All that these warps did is ordered before what they do next."""
        self.known[b, w, w] = self.time[b, w]
        self.time[b, w] += 1
        lanes = 32 * np.asarray(w)[..., None] + np.arange(32)
        self.lane_joined[np.asarray(b)[..., None], lanes] = self.lane_fenced[np.asarray(b)[..., None], lanes]

    def join(self, full: Array) -> None:
        """A barrier of the warps marked in ``full`` (blocks, warps); a block without any is not touched."""
        b, w = np.nonzero(full)
        self.release(b, w)
        for table in (self.known, self.fenced):
            top = np.where(full[:, :, None], table, 0).max(axis=1)
            table[b, w] = top[b]

    def fence(self, active: Array) -> None:
        """A device fence by ``active`` (blocks, warps, lanes): it covers a lane's own stores and what was ordered before it."""
        b, w, lane = np.nonzero(active)
        self.lane_fenced[b, 32 * w + lane] = self.time[b, w]
        b, w = np.nonzero(active.any(axis=2))
        self.fenced[b, w] = np.maximum(self.fenced[b, w], self.known[b, w])
        self.known[b, w, self.outside] |= self.known[b, w, self.outside] > 0
        self.time[b, w] += 1

    def proxy_fence(self, full: Array, some: Array) -> None:
        b, w = np.nonzero(some)
        self.proxied[b, w] = np.maximum(self.proxied[b, w], self.known[b, w, w])
        b, w = np.nonzero(full)
        self.proxied[b, w] = self.time[b, w]
        self.time[b, w] += 1
