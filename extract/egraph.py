"""A saturated e-graph as extraction reads it: options a class, and where values may be stored.

A *cut* is a class that its readers may load from memory instead of computing it.  Those worth considering (`EGraph.cuts`)
hold a reduction or a scan and are not just a step on the way to a better place to cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from emmy_eq import index as ix
from emmy_eq.egraph import ENode, Saturated
from emmy_eq.ops import itemsize, ops
from emmy_eq.terms import InputBuf

FOLDS = frozenset({"reduce", "argreduce", "twist"})
DEAR = FOLDS | {"scan"}


@dataclass(frozen=True, slots=True)
class Option:
    """One way to compute a class: ``op`` and ``attr`` as in `emmy_eq.terms.Val`.

    ``stored`` is the class that a renamed read needs in memory (-1: none); its ``attr`` is then the coordinates, aligned
    with the axes that the stored value really depends on.  ``mask``: axes of a load's or iota's expressions, or bound by a fold.
    """

    op: str
    children: tuple[int, ...]
    attr: Any
    mask: int = 0
    stored: int = -1


@dataclass(slots=True)
class EGraph:
    """``options`` by class; ``dear``: no way to compute the class does without a fold, a scan or a read of a stored value;
    ``cuts`` in class order; ``names`` of the classes that are tensors of the source program."""

    sat: Saturated
    options: list[list[Option]]
    dear: list[bool]
    cuts: tuple[int, ...] = ()
    names: dict[int, str] = field(default_factory=dict)

    def seen_from(self, root: int, stop: frozenset[int]) -> set[tuple[int, bool]]:
        """Classes of ``stop`` that a kernel storing ``root`` meets first, and whether within a fold or under other indices."""
        seen = {(root, False)}
        queue = [(root, False)]
        found: set[tuple[int, bool]] = set()
        for c, folded in queue:
            for option in self.options[c]:
                inside = folded or option.op in DEAR
                if option.stored >= 0:
                    found.add((option.stored, True))
                for child in option.children:
                    if child in stop:
                        found.add((child, inside))
                    elif (child, inside) not in seen:
                        seen.add((child, inside))
                        queue.append((child, inside))
        return {(c, folded) for c, folded in found if c in stop and c != root}

    def folds_in(self, root: int, stop: frozenset[int]) -> bool:
        """Whether a kernel storing ``root`` and reading ``stop`` folds or scans."""
        seen = {root}
        queue = [root]
        for c in queue:
            if any(o.op in DEAR for o in self.options[c]):
                return True
            new = {x for o in self.options[c] for x in o.children} - seen - stop
            seen |= new
            queue += sorted(new)
        return False


def read(sat: Saturated) -> EGraph:
    """The options and cuts of ``sat``."""
    options = [list(_options(sat, c)) for c in range(len(sat.classes))]
    _read_casts(sat, options)
    graph = EGraph(sat, options, _dear(options))
    graph.names = _names(sat)
    graph.cuts = tuple(_cuts(graph))
    return graph


def _options(sat: Saturated, cls: int) -> Iterator[Option]:
    """Without reads of the class itself and without mirror images."""
    seen = set()
    for node in sat.classes[cls]:
        option = _option(sat, node)
        if cls not in (*option.children, option.stored) and option not in seen:
            seen.add(option)
            yield option


def _read_casts(sat: Saturated, options: list[list[Option]]) -> None:
    """A cast of a renamed read is the same read of the cast: so what is stored may be the narrower of the two."""
    casts = {(o.children[0], sat.dtype[c]): c for c, found in enumerate(options) for o in found if o.op == "cast"}
    for c, found in enumerate(options):
        reads = [r for o in found if o.op == "cast" for r in options[o.children[0]] if r.stored >= 0]
        for read in reads:
            narrow = casts.get((read.stored, sat.dtype[c]))
            new = replace(read, stored=narrow) if narrow is not None else read
            if narrow is not None and sat.free[narrow] == sat.free[read.stored] and new not in found:
                found.append(new)


def _option(sat: Saturated, node: ENode) -> Option:
    if node.op == "iota":
        return Option("iota", (), node.attr, sat.axes.mask(node.attr))
    if node.op == "load" and isinstance(node.attr[0], InputBuf):
        return Option("load", node.children, node.attr, _axes(sat, node.attr[1]))
    if node.op == "load":
        *indices, stored = node.children
        _, mask, idxs = node.attr
        idxs = tuple(x for x, a in zip(idxs, sat.axes.of(mask), strict=True) if sat.free[stored] & a.bit)
        return Option("load", tuple(indices), idxs, _axes(sat, idxs), stored)
    if node.op in DEAR:
        return Option(node.op, node.children, node.attr[0], node.attr[1])
    commutes = node.op in ops() and ops()[node.op].commutative
    return Option(node.op, tuple(sorted(node.children)) if commutes else node.children, node.attr)


def _axes(sat: Saturated, idxs: Sequence[ix.Idx]) -> int:
    mask = 0
    for x in idxs:
        mask |= sat.axes.mask(x)
    return mask


def _dear(options: Sequence[Sequence[Option]]) -> list[bool]:
    cheap = [False] * len(options)
    changed = True
    while changed:
        changed = False
        for c, found in enumerate(options):
            if not cheap[c] and any(o.stored < 0 and o.op not in DEAR and all(cheap[x] for x in o.children) for o in found):
                cheap[c] = changed = True
    return [not c for c in cheap]


def _names(sat: Saturated) -> dict[int, str]:
    """A buffer's name for every class that is a tensor of the source program: that of a result, else of the first seam."""
    names: dict[int, str] = {}
    for cls, result in zip(sat.roots, sat.results, strict=True):
        names.setdefault(cls, result.name)
    for seam in sat.seams:
        names.setdefault(seam.cls, seam.name)
    return names


def _cuts(graph: EGraph) -> Iterator[int]:
    """Dear classes that may be read back, less those that only lead, point by point, to one other that is no larger.

    Where several lead to one so, their folds need not be one kernel's.
    """
    sat = graph.sat
    readable = {c for c, members in enumerate(sat.classes) if any(n.op == "load" and n.children[-1:] == (c,) for n in members)}
    readable |= {o.stored for found in graph.options for o in found if o.stored >= 0}
    shared = _multiplied(graph)
    candidates = sorted(c for c in readable if graph.dear[c] and (c in shared or not _rebuilt(graph, c)))
    stop = frozenset(candidates)
    above: dict[int, set[tuple[int, bool]]] = {c: set() for c in candidates}  # who reads it, and whether in a fold
    for d in sorted({*candidates, *sat.roots}):
        for c, folded in graph.seen_from(d, stop):
            above[c].add((d, folded))
    joined = Counter(next(iter(above[c]))[0] for c in candidates if len(above[c]) == 1)
    for c in candidates:
        (d, folded), *others = above[c] or {(-1, True)}
        larger = d not in stop or sat.free[c] != sat.free[d] or itemsize(sat.dtype[d]) > itemsize(sat.dtype[c])
        if others or folded or larger or joined[d] > 1:
            yield c


def _multiplied(graph: EGraph) -> set[int]:
    """Operands of contractions: a kernel that does not read such a value computes it again for each tile along the other's axes."""
    free = graph.sat.free
    found = set()
    for fold in (o for options in graph.options for o in options if o.op == "reduce"):
        for product in (o for o in graph.options[fold.children[0]] if o.op == "mul"):
            a, b = product.children
            if free[a] & ~free[b] and free[b] & ~free[a] and free[a] & free[b] & fold.mask:
                found |= {x for x in (a, b) if not _widened(graph, x)}
    return found


def _widened(graph: EGraph, c: int) -> bool:
    """Whether ``c`` is a cast of what takes less memory."""
    dtype = graph.sat.dtype
    return any(o.op == "cast" and itemsize(dtype[o.children[0]]) < itemsize(dtype[c]) for o in graph.options[c])


def _rebuilt(graph: EGraph, c: int) -> bool:
    """Whether ``c`` is computed point by point from dear values that take less memory: storing those is better."""

    def size(x: int) -> int:
        return graph.sat.axes.points(graph.sat.free[x]) * itemsize(graph.sat.dtype[x])

    def smaller(o: Option) -> bool:
        return o.stored < 0 and o.op not in DEAR and all(size(x) < size(c) for x in o.children if graph.dear[x])

    return any(map(smaller, graph.options[c]))
