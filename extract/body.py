"""The body of one kernel: a term for each of its outputs, chosen from the e-graph by greedy DAG extraction.

Classes are settled in order of cost (Knuth's generalization of Dijkstra's algorithm), where the cost of a term counts every
shared class once.  A class costs what it adds to a kernel with these parallel axes; costs are whole femtoseconds, so
that no rounding decides between equal forms, and ties go by structure, never by names.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import ceil, prod

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.extract.cost import SHARED
from emmy_eq.extract.egraph import EGraph, Option
from emmy_eq.extract.targets import Target
from emmy_eq.ops import itemsize, ops
from emmy_eq.terms import InputBuf, TempBuf, Val


@dataclass(frozen=True, slots=True)
class Body:
    """``vals``: a term a root; ``loads``: the stored classes that they read; ``classes`` of their terms, for
    `emmy_eq.extract.nest.Unrealisable`."""

    vals: tuple[Val, ...]
    loads: frozenset[int]
    classes: Mapping[Val, int]

    @property
    def twisted(self) -> bool:
        return any(v.op == "twist" for v in self.classes)


@dataclass(slots=True)
class _Choice:
    """A settled class: ``below`` is the set of classes that ``cost`` counts, as bits in order of settling."""

    option: Option | None  # None: read from memory, point by point
    cost: int
    below: int
    key: bytes


class Extractor:
    """Extraction on one target; ``names`` gives the buffer of a class that is stored."""

    def __init__(self, graph: EGraph, target: Target, names: Mapping[int, str]) -> None:
        self.graph, self.target, self.names = graph, target, names
        self.axes = graph.sat.axes
        self.points = cache(self.axes.points)
        self.links = [[(o, tuple(dict.fromkeys(o.children))) for o in found] for found in graph.options]
        self.weights: dict[tuple[int, int], int] = {}  # by option and parallel axes
        self.keys: dict[tuple[object, ...], bytes] = {}

    def body(self, roots: Sequence[int], parallel: int, stop: frozenset[int], one_pass: bool) -> Body | None:
        """The cheapest term for each of ``roots`` in a kernel over the axes ``parallel``, reading the classes of ``stop`` from memory.

        ``one_pass``: twists may be used.  None where every term for a root needs one.
        """
        settled: dict[int, _Choice] = {}
        order: list[int] = []
        weights: list[int] = []  # by position in ``order``
        waiting: dict[int, list[tuple[int, Option]]] = {}  # by child: options that need it
        missing: dict[int, int] = {}
        heap: list[tuple[int, bytes, int, int]] = []
        pending: list[tuple[Option | None, int, int]] = []  # option, weight, classes below it

        def push(c: int, option: Option | None) -> None:
            weight = self.weight(c, option, parallel, stop)
            children = [settled[x] for x in option.children] if option is not None else []
            key = self.key(c, option, children)
            if option is not None and option.stored >= 0 and option.stored not in stop:
                children.append(settled[option.stored])
            cost, below = _union(children, weights)
            heapq.heappush(heap, (weight + cost, key, c, len(pending)))
            pending.append((option, weight, below))

        found = set(roots)
        queue = list(dict.fromkeys(roots))
        for c in queue:
            if c in stop and c not in roots:
                push(c, None)
                continue
            for option, children in self.links[c]:
                if option.op == "twist" and not one_pass:
                    continue
                if option.stored >= 0 and option.stored not in stop:
                    children = tuple(dict.fromkeys((*children, option.stored)))
                missing[id(option)] = len(children)
                for child in children:
                    waiting.setdefault(child, []).append((c, option))
                    if child not in found:
                        found.add(child)
                        queue.append(child)
                if not children:
                    push(c, option)
        left = set(roots)
        while heap and left:
            cost, key, c, n = heapq.heappop(heap)
            if c in settled:
                continue
            chosen, weight, below = pending[n]
            settled[c] = _Choice(chosen, cost, below | 1 << len(order), key)
            order.append(c)
            weights.append(weight)
            left.discard(c)
            for user, waiter in waiting.get(c, ()):
                missing[id(waiter)] -= 1
                if missing[id(waiter)] == 0 and user not in settled:
                    push(user, waiter)
        return None if left else self.build(roots, settled, order)

    def weight(self, c: int, option: Option | None, parallel: int, stop: frozenset[int]) -> int:
        """Femtoseconds that computing class ``c`` so adds."""
        t = self.target
        if option is None:
            return 1 + round(self.points(self.graph.sat.free[c]) * itemsize(self.graph.sat.dtype[c]) / t.dram_bandwidth * 1e15)
        extra = 0
        if option.stored >= 0 and option.stored not in stop:
            # A renamed read of what is not stored yet brings a kernel that computes and stores it.
            extra = round(t.launch_seconds * 1e15) + self.weight(option.stored, None, parallel, stop)
        known = (id(option), parallel)
        if known not in self.weights:
            self.weights[known] = 1 + self.early(option) + round(self.seconds(c, option, parallel) * 1e15)
        return self.weights[known] + extra

    def early(self, option: Option) -> bool:
        """Whether it chooses between what was widened as it came from memory: tensor cores take what is widened last."""
        if option.op != "where":
            return False
        dtype, options = self.graph.sat.dtype, self.graph.options
        casts = [(x, o.children[0]) for x in option.children for o in options[x] if o.op == "cast"]
        return any(itemsize(dtype[x]) > itemsize(dtype[y]) and any(o.op == "load" for o in options[y]) for x, y in casts)

    def seconds(self, c: int, option: Option, parallel: int) -> float:
        t, free = self.target, self.graph.sat.free[c]
        if option.op == "lit":
            return 0.0
        if option.op == "load":
            points = self.points(free)
            if option.stored < 0:
                points = min(points, _elements(option.attr[0]))
            return points * itemsize(self.graph.sat.dtype[c]) / t.dram_bandwidth
        row = ops().get(option.op)
        rate = t.sfu_rate if row is not None and row.unit == "sfu" else t.flops["fma"] / 2
        for child in option.children if option.mask else ():
            free |= self.graph.sat.free[child]
        free |= option.mask
        # Axis by axis, which is little: whether recomputing pays is for the plan to find out, by not storing.
        repeats = prod(ceil(a.extent / SHARED) for a in self.axes.of(parallel & ~free))
        return self.points(free) * repeats * (row.cost if row is not None else 1.0) / rate

    def key(self, c: int, option: Option | None, children: Sequence[_Choice]) -> bytes:
        """Decides ties by what is computed: a digest that names neither inputs nor classes."""
        known = (c if option is None else id(option), *(x.key for x in children))
        if known not in self.keys:
            self.keys[known] = digest(*self.note(c, option, [x.key for x in children]))
        return self.keys[known]

    def note(self, c: int, option: Option | None, keys: list[bytes]) -> tuple[object, ...]:
        dtype = self.graph.sat.dtype[c]
        if option is None:
            return "stored", dtype
        alike = [option.children.index(x) for x in option.children]
        if option.op in ops() and ops()[option.op].commutative:
            keys.sort()
        if option.op == "load":
            idxs = option.attr if option.stored >= 0 else option.attr[1]
            shape = () if option.stored >= 0 else option.attr[0].shape
            return "load", dtype, shape, ", ".join(map(ix.show, idxs)), keys
        return option.op, dtype, str(option.attr), option.mask, alike, keys

    def build(self, roots: Sequence[int], settled: Mapping[int, _Choice], order: list[int]) -> Body:
        values: dict[int, Val] = {}
        loads: set[int] = set()
        used = set(roots)
        for c in reversed(order):
            option = settled[c].option
            if c in used and option is not None:
                used.update(option.children)
        for c in order:
            if c not in used:
                continue
            option = settled[c].option
            if option is None:
                loads.add(c)
            elif option.stored >= 0:
                loads.add(option.stored)
            values[c] = self.term(c, option, [values[x] for x in option.children] if option is not None else [])
        return Body(tuple(values[root] for root in roots), frozenset(loads), {v: c for c, v in values.items()})

    def buffer(self, c: int) -> TempBuf:
        return TempBuf(self.names[c], self.graph.sat.free[c], self.graph.sat.dtype[c])

    def term(self, c: int, option: Option | None, args: list[Val]) -> Val:
        if option is None:
            return tm.pointwise(self.buffer(c), self.axes)
        dtype = self.graph.sat.dtype[c]
        if option.op == "lit":
            return tm.lit(dtype, option.attr)
        if option.op == "iota":
            return tm.iota(option.attr, option.mask)
        if option.op == "load" and option.stored >= 0:
            return tm.load(self.buffer(option.stored), option.attr, option.mask, tuple(args))
        if option.op == "load":
            return tm.load(option.attr[0], option.attr[1], option.mask, tuple(args))
        return tm.computed(option.op, dtype, option.attr, option.mask, args)


def _elements(buf: InputBuf) -> int:
    n = 1
    for extent in buf.shape:
        n *= extent
    return n


def _union(children: Sequence[_Choice], weights: Sequence[int]) -> tuple[int, int]:
    """What the terms of ``children`` cost together, classes that they share counted once, and their classes."""
    if not children:
        return 0, 0
    first, *others = sorted(children, key=_cost, reverse=True) if len(children) > 1 else children
    cost, below = first.cost, first.below
    for choice in others:
        new = choice.below & ~below
        below |= new
        while new:
            low = new & -new
            cost += weights[low.bit_length() - 1]
            new ^= low
    return cost, below


def _cost(choice: _Choice) -> int:
    return choice.cost


def digest(*parts: object) -> bytes:
    return blake2b(repr(parts).encode(), digest_size=8).digest()
