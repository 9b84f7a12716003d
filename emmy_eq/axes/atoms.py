"""Atoms: the parts of dims between split points, united into axes."""

from __future__ import annotations

import heapq
from itertools import pairwise

from emmy_eq.axes.disjoint import UnionFind
from emmy_eq.axes.links import Link, Segment
from emmy_eq.axes.splits import Splits
from emmy_eq.tensor_ir import Const, Input, Iota, Program, Reduce


class Atoms:
    """Atoms of all tensors, united into axes; no tensor ever holds one axis twice."""

    def __init__(self, program: Program, splits: Splits) -> None:
        self.first: list[list[int]] = []
        self.bounds: list[list[list[int]]] = []
        self.extent: list[int] = []
        self.tensors: list[set[int]] = []
        for n, node in enumerate(program.nodes):
            bounds = [splits.of(n, d) if extent != 1 else [1] for d, extent in enumerate(node.shape)]
            self.bounds.append(bounds)
            self.first.append([])
            for b in bounds:
                self.first[-1].append(len(self.extent))
                self.extent.extend(high // low for high, low in pairwise(b))
            self.tensors.extend({n} for _ in range(len(self.tensors), len(self.extent)))
        self.same = UnionFind(len(self.extent))

    def of(self, node: int, dim: int) -> list[int]:
        """The axes (class numbers) of a dim, outermost first."""
        first = self.first[node][dim]
        return [self.same.find(a) for a in range(first, first + len(self.bounds[node][dim]) - 1)]

    def tensor(self, node: int) -> list[int]:
        return [a for d in range(len(self.first[node])) for a in self.of(node, d)]

    def _within(self, s: Segment) -> list[int]:
        bounds = self.bounds[s.node][s.dim]
        pairs = pairwise(bounds)
        return [a for a, (high, low) in zip(self.of(s.node, s.dim), pairs, strict=True) if s.low <= low and high <= s.high]

    def unite(self, link: Link) -> None:
        """One axis for each pair of atoms of the link, save those that would meet themselves in a tensor."""
        for a, b in zip(self._within(link.reader), self._within(link.operand), strict=True):
            a, b = self.same.find(a), self.same.find(b)
            if a == b or not self.tensors[a].isdisjoint(self.tensors[b]):
                continue
            if len(self.tensors[a]) > len(self.tensors[b]):
                a, b = b, a
            self.same.parent[a] = b
            self.tensors[b] |= self.tensors[a]

    def classes(self, program: Program) -> list[int]:
        """The axes in id order: by first appearance, but so that the reduced axes of an argmax come in their dims' order if they can."""
        rank: dict[int, int] = {}
        after: dict[int, list[int]] = {}
        blocked: dict[int, int] = {}
        for n, node in enumerate(program.nodes):
            if not isinstance(node, Input | Const | Iota):
                for a in self.tensor(n):
                    rank.setdefault(a, len(rank))
            if isinstance(node, Reduce) and node.op.startswith("arg"):
                chain = [a for d in sorted(node.dims) for a in self.of(node.arg, d)]
                for a, b in pairwise(chain):
                    after.setdefault(a, []).append(b)
                    blocked[b] = blocked.get(b, 0) + 1
        ready = [(r, a) for a, r in rank.items() if not blocked.get(a)]
        heapq.heapify(ready)
        out: list[int] = []
        left = dict(rank)
        while left:
            a = heapq.heappop(ready)[1] if ready else min(left, key=left.__getitem__)  # a cycle: two argmaxes disagree, one is renamed
            if left.pop(a, None) is None:
                continue
            out.append(a)
            for b in after.get(a, ()):
                blocked[b] -= 1
                if not blocked[b] and b in left:
                    heapq.heappush(ready, (rank[b], b))
        return out
