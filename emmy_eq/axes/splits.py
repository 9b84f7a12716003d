"""Split points: where each dim is cut into atoms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emmy_eq.axes.disjoint import UnionFind
from emmy_eq.axes.links import Link, Segment, digits
from emmy_eq.tensor_ir import Gather, IndexMap, Program, Scan


@dataclass(frozen=True, slots=True)
class Run:
    """Digits [low, high) of one dim are digits [other_low, ...) of dim ``other``: a split of one is a split of the other."""

    low: int
    high: int
    other: int
    other_low: int


class Splits:
    """The split points of every dim; those of one dim always nest, so that they cut it into atoms."""

    def __init__(self, program: Program) -> None:
        self.start: list[int] = []
        self.extent: list[int] = []
        for node in program.nodes:
            self.start.append(len(self.extent))
            self.extent.extend(node.shape)
        self.same = UnionFind(len(self.extent))  # dims that run along one another in full
        self.points: list[set[int]] = [set() for _ in self.extent]
        self.runs: list[list[Run]] = [[] for _ in self.extent]
        self.whole: set[int] = set()

    def dim(self, s: Segment) -> int:
        return self.same.find(self.start[s.node] + s.dim)

    def of(self, node: int, dim: int) -> list[int]:
        """The suffix products that bound the atoms of a dim, largest first: extent, ..., 1."""
        at = self.start[node] + dim
        return [self.extent[at], *sorted(self.points[self.same.find(at)], reverse=True), 1]

    def adopt(self, program: Program, links: Sequence[Link]) -> list[Link]:
        """The links that stand, strongest first, after splitting dims as these links and the reads' divisions ask."""
        partial: dict[tuple[int, int, int], list[Link]] = {}
        for link in links:
            if self._whole(link.reader) and self._whole(link.operand):
                self.same.parent[self.dim(link.reader)] = self.dim(link.operand)
            else:
                partial.setdefault(link.group, []).append(link)
        for n, node in enumerate(program.nodes):
            if isinstance(node, Scan):  # a scan has one axis
                self.whole.add(self.same.find(self.start[n] + node.dim))
        refused = {group for group, part in sorted(partial.items(), key=lambda item: item[1][0].rank) if not self._extend(part, ())}
        for n, node in enumerate(program.nodes):
            if isinstance(node, IndexMap | Gather):
                self._split_reader(n, node)
        return sorted((x for x in links if x.group not in refused), key=lambda x: x.rank)

    def _whole(self, s: Segment) -> bool:
        return s.low == 1 and s.high == self.extent[self.start[s.node] + s.dim]

    def _split_reader(self, n: int, node: IndexMap | Gather) -> None:
        """Split the reader where it divides (d0 // 8): its index is linear then, and does not vary along the dropped digits."""
        for x in node.index:
            for digit in digits(x, node.shape) or ():
                at = self.same.find(self.start[n] + int(digit.name[1:]))
                self._extend((), [(at, digit.low), (at, digit.high)])

    def _extend(self, links: Sequence[Link], points: Iterable[tuple[int, int]]) -> bool:
        """Adopt links and points with all that follows from them; where splits do not nest, change nothing and say False."""
        work = deque(points)
        new_runs: list[int] = []
        new_points: list[tuple[int, int]] = []
        for link in links:
            ends = (link.reader, link.operand)
            for here, there in (ends, ends[::-1]):
                run = Run(here.low, here.high, self.dim(there), there.low)
                self.runs[self.dim(here)].append(run)
                new_runs.append(self.dim(here))
                work.extend(((self.dim(here), here.low), (self.dim(here), here.high)))
        work.extend((run.other, p // run.low * run.other_low) for d in new_runs for run in self.runs[d] for p in self.points[d]
                    if run.low < p < run.high)  # fmt: skip
        while work:
            d, p = work.popleft()
            if p in self.points[d] or p in (1, self.extent[d]):
                continue
            if d in self.whole or any(p % q and q % p for q in self.points[d]):
                self._undo(new_runs, new_points)
                return False
            self.points[d].add(p)
            new_points.append((d, p))
            work.extend((run.other, p // run.low * run.other_low) for run in self.runs[d] if run.low < p < run.high)
        return True

    def _undo(self, runs: Sequence[int], points: Sequence[tuple[int, int]]) -> None:
        for d in runs:
            self.runs[d].pop()
        for d, p in points:
            self.points[d].discard(p)
