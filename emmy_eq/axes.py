"""Axis inference: every dim of every tensor of a Tensor IR program as a tuple of atomic, program-wide axes.

Three steps, each a union-find:

    splits   which suffix products cut a dim: a view of 2048 as (32, 64) cuts it at 64, and so does every dim that runs along it
    unions   which atoms are one axis: operands of an elementwise op, the factors of a view, a reduction and its operand
    ids      axes in an order in which argmax can count; past 62 axes, those that never meet share an id

Both unions are refused where they would be wrong (6 = 2x3 against 3x2; one axis twice in one tensor, as in x @ x.T).  The
read that asked for a refused union is then a *renamed* one.  Refusal depends on order, so the links that hurt most when
lost come first: elementwise ops and reductions, then index maps of computed tensors in program order (a product's left
operand keeps its rows), then reads of inputs, which cost nothing to rename.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emmy_eq import index as ix
from emmy_eq.errors import Unsupported
from emmy_eq.tensor_ir import Const, Gather, IndexMap, Input, Iota, Node, Program, Reduce, Scan, Shape, arguments
from emmy_eq.terms import Axis, AxisTable

MAX_AXES = 62


@dataclass(frozen=True, slots=True)
class Axes:
    """``dims[node][dim]``: the atomic axes of that dim, outermost first; none for a dim of extent 1, nor for Input, Const and Iota."""

    table: AxisTable
    dims: tuple[tuple[tuple[Axis, ...], ...], ...]


def dear(node: Node) -> bool:
    """Whether a value is worth a buffer of its own before it is computed again under other indices."""
    return isinstance(node, Reduce | Scan)


def infer(program: Program, limit: int = MAX_AXES) -> Axes:
    """The axes of ``program``; raises `Unsupported` where more than ``limit`` would be alive at once.

    An IndexMap must have one reader, and a Reduce or Scan no Input as operand (`to_terms.private_maps` sees to both).
    """
    links = list(_links(program))
    splits = _Splits(program)
    accepted = splits.adopt(program, links)
    atoms = _Atoms(program, splits)
    for link in accepted:
        atoms.unite(link)
    order = atoms.classes(program)
    ids = dict(zip(order, _share(program, atoms, order, limit), strict=True))
    table = AxisTable()
    axes: dict[int, Axis] = {}
    for name, id in ids.items():
        axes[id] = axes.get(id) or table.add(atoms.extent[name])
    nodes = [() if isinstance(n, Input | Const | Iota) else n.shape for n in program.nodes]
    dims = tuple(tuple(tuple(axes[ids[a]] for a in atoms.of(n, d)) for d in range(len(shape))) for n, shape in enumerate(nodes))
    return Axes(table, dims)


@dataclass(frozen=True, slots=True)
class _Segment:
    """The digits of dim ``dim`` of tensor ``node`` between suffix products ``low`` and ``high``."""

    node: int
    dim: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Link:
    """Two segments that run together in one read; ``group`` names the operand dim that they describe between them."""

    reader: _Segment
    operand: _Segment
    group: tuple[int, int, int]  # (reader, operand, operand's dim)
    rank: int  # 0: elementwise and reductions, 1: index maps, 2: reads of inputs


def _links(program: Program) -> Iterator[_Link]:
    """Every pair of segments that a read would like to share."""
    for n, node in enumerate(program.nodes):
        for k, arg in enumerate(arguments(node)):
            operand = program.nodes[arg]
            if isinstance(operand, Const | Iota):
                continue
            rank = 2 if isinstance(operand, Input) else int(isinstance(node, IndexMap | Gather) and k == 0)
            if isinstance(node, IndexMap | Gather) and k == 0:
                for dim, (x, extent) in enumerate(zip(node.index, operand.shape, strict=True)):
                    yield from (_Link(r, o, (n, arg, dim), rank) for r, o in _tiling(n, node.shape, x, arg, dim, extent))
                continue
            kept = [d for d in range(len(operand.shape)) if not isinstance(node, Reduce) or d not in node.dims]
            for d, dim in enumerate(kept):
                extent = operand.shape[dim]
                yield _Link(_Segment(n, d, 1, extent), _Segment(arg, dim, 1, extent), (n, arg, dim), rank)


def _tiling(n: int, shape: Shape, x: ix.Idx, arg: int, dim: int, extent: int) -> Iterator[tuple[_Segment, _Segment]]:
    """The segments that ``x`` pairs up, where its digits cover [0, extent) exactly once (mixed radix)."""
    digits = _digits(x, shape)
    if digits is None or extent == 1:
        return
    weight = 1
    for digit in reversed(digits):
        if digit.weight != weight:
            return
        weight *= digit.high // digit.low
    if weight != extent:
        return
    for digit in digits:
        high = digit.weight * (digit.high // digit.low)
        yield _Segment(n, int(digit.name[1:]), digit.low, digit.high), _Segment(arg, dim, digit.weight, high)


def _digits(x: ix.Idx, shape: Shape) -> tuple[ix.Digit, ...] | None:
    """``x`` as digits of the dims of ``shape``; None for other forms, data-dependent ones among them."""
    extents = {f"d{d}": extent for d, extent in enumerate(shape)}
    if x.op == "var" and x.name in extents:
        return (ix.Digit(x.name, 1, extents[x.name], 1),)
    if 0 in shape or not ix.variables(x) <= set(extents):
        return None
    return ix.digits(ix.simplify(x, extents), extents)


class _UnionFind:
    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def find(self, x: int) -> int:
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x


@dataclass(frozen=True, slots=True)
class _Run:
    """Digits [low, high) of one dim are digits [other_low, ...) of dim ``other``: a split of one is a split of the other."""

    low: int
    high: int
    other: int
    other_low: int


class _Splits:
    """The split points of every dim; those of one dim always nest, so that they cut it into atoms."""

    def __init__(self, program: Program) -> None:
        self.start: list[int] = []
        self.extent: list[int] = []
        for node in program.nodes:
            self.start.append(len(self.extent))
            self.extent.extend(node.shape)
        self.same = _UnionFind(len(self.extent))  # dims that run along one another in full
        self.points: list[set[int]] = [set() for _ in self.extent]
        self.runs: list[list[_Run]] = [[] for _ in self.extent]
        self.whole: set[int] = set()

    def dim(self, s: _Segment) -> int:
        return self.same.find(self.start[s.node] + s.dim)

    def of(self, node: int, dim: int) -> list[int]:
        """The suffix products that bound the atoms of a dim, largest first: extent, ..., 1."""
        at = self.start[node] + dim
        return [self.extent[at], *sorted(self.points[self.same.find(at)], reverse=True), 1]

    def adopt(self, program: Program, links: Sequence[_Link]) -> list[_Link]:
        """The links that stand, strongest first, after splitting dims as these links and the reads' divisions ask."""
        partial: dict[tuple[int, int, int], list[_Link]] = {}
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

    def _whole(self, s: _Segment) -> bool:
        return s.low == 1 and s.high == self.extent[self.start[s.node] + s.dim]

    def _split_reader(self, n: int, node: IndexMap | Gather) -> None:
        """Split the reader where it divides (d0 // 8): its index is linear then, and does not vary along the dropped digits."""
        for x in node.index:
            for digit in _digits(x, node.shape) or ():
                at = self.same.find(self.start[n] + int(digit.name[1:]))
                self._extend((), [(at, digit.low), (at, digit.high)])

    def _extend(self, links: Sequence[_Link], points: Iterable[tuple[int, int]]) -> bool:
        """Adopt links and points with all that follows from them; where splits do not nest, change nothing and say False."""
        work = deque(points)
        new_runs: list[int] = []
        new_points: list[tuple[int, int]] = []
        for link in links:
            ends = (link.reader, link.operand)
            for here, there in (ends, ends[::-1]):
                run = _Run(here.low, here.high, self.dim(there), there.low)
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


class _Atoms:
    """Atoms of all tensors, united into axes; no tensor ever holds one axis twice."""

    def __init__(self, program: Program, splits: _Splits) -> None:
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
        self.same = _UnionFind(len(self.extent))

    def of(self, node: int, dim: int) -> list[int]:
        """The axes (class numbers) of a dim, outermost first."""
        first = self.first[node][dim]
        return [self.same.find(a) for a in range(first, first + len(self.bounds[node][dim]) - 1)]

    def tensor(self, node: int) -> list[int]:
        return [a for d in range(len(self.first[node])) for a in self.of(node, d)]

    def _within(self, s: _Segment) -> list[int]:
        bounds = self.bounds[s.node][s.dim]
        pairs = pairwise(bounds)
        return [a for a, (high, low) in zip(self.of(s.node, s.dim), pairs, strict=True) if s.low <= low and high <= s.high]

    def unite(self, link: _Link) -> None:
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


def _share(program: Program, atoms: _Atoms, order: Sequence[int], limit: int) -> list[int]:
    """An id for each axis of ``order``.  Past ``limit``, axes share one unless they meet within some reductions of one another.

    Sharing is sound as long as no tensor holds an axis twice (reach 0); the wider reach keeps axes apart in whatever may
    become one kernel, where a name that is both bound and free would stand in the way of rewrites.
    """
    if len(order) <= limit:
        return list(range(len(order)))
    for reach in (4, 2, 1, 0):
        ids = _colour(_meetings(program, atoms, reach), [(a, atoms.extent[a]) for a in order])
        if max(ids) < limit:
            return ids
    raise Unsupported("program", f"more than {limit} loop axes meet in its tensors; compile it in parts")


def _meetings(program: Program, atoms: _Atoms, reach: int) -> dict[int, set[int]]:
    """For each axis, those that it must stay apart from."""
    near: list[list[frozenset[int]]] = []  # near[node][k]: axes of the node and of what it is computed from, across k reductions
    meets: dict[int, set[int]] = {}
    for n, node in enumerate(program.nodes):
        source = isinstance(node, Input | Const | Iota)
        own = frozenset() if source else frozenset(atoms.tensor(n))
        if dear(node):
            own |= frozenset(atoms.tensor(arguments(node)[0]))
        levels = [own] * (reach + 1)
        for arg in arguments(node):
            step = int(dear(program.nodes[arg]))
            for k in range(step, reach + 1):
                levels[k] |= near[arg][k - step]
        near.append(levels)
        for a in levels[reach]:
            meets.setdefault(a, set()).update(levels[reach])
    return meets


def _colour(meets: dict[int, set[int]], axes: Sequence[tuple[int, int]]) -> list[int]:
    """Greedy: the first id of the same extent that none of the axis's neighbours has."""
    colour: dict[int, int] = {}
    extents: list[int] = []
    for a, extent in axes:
        taken = {colour[b] for b in meets[a] if b in colour}
        free = next((c for c, e in enumerate(extents) if e == extent and c not in taken), len(extents))
        if free == len(extents):
            extents.append(extent)
        colour[a] = free
    return list(colour.values())
