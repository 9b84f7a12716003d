"""The local search for what to store.

It starts from three plans (store nothing, every tensor worth it, every contraction of the source program) and climbs from the
two best by storing one value more, less, or in place of another.  Kernels are cached by what they compute and the cuts that they can see.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations
from operator import or_

from emmy_eq import loop_ir, progress
from emmy_eq.egraph import Saturated
from emmy_eq.extract import egraph as eg
from emmy_eq.extract.body import Body, Extractor
from emmy_eq.extract.cost import Cost, cost
from emmy_eq.extract.egraph import EGraph, Option
from emmy_eq.extract.loops import build, sketch
from emmy_eq.extract.measured import PLAIN, Model
from emmy_eq.extract.merge import Planned, merge
from emmy_eq.extract.nest import Output, Unrealisable
from emmy_eq.extract.pinned import Place, classes, honoured, stated
from emmy_eq.extract.targets import Target
from emmy_eq.ops import itemsize
from emmy_eq.terms import Axis, Result

FEW = 8  # values that may be stored: of so many each is tried in place of each other
Job = tuple[int, int]  # a class and the axes it is stored over
Made = dict[Job, tuple[Planned, frozenset[int]]]  # kernels, and the stored classes that each reads


@dataclass(frozen=True, slots=True)
class Met:
    """One plan that the search looked at; ``stored`` names its temporaries."""

    stored: tuple[str, ...]
    kernels: int
    seconds: float
    flops: int
    bytes: int


class Search:
    """Plans of one saturated program on one target; ``pinned``: class -> ``fuse`` or ``cut``, as ``place`` says by name."""

    def __init__(self, sat: Saturated, target: Target, place: Place = "auto", deadline: float = float("inf"), model: Model = PLAIN) -> None:
        self.sat, self.target, self.deadline, self.model = sat, target, deadline, model
        self.graph: EGraph = eg.read(sat)
        self.universe = frozenset({*self.graph.cuts, *sat.roots, *(s.cls for s in sat.seams)} | _stored(self.graph))
        self.names = _unique_names(self.graph, self.universe)
        self.pinned, self.pins = classes(self.graph, self.names, place), stated(place)
        if self.pinned:
            self.graph.options = honoured(self.graph, self.pinned)
        self.needed: set[int] = {c for c, value in self.pinned.items() if value == "cut"}  # stored in every plan
        self.roots: dict[Job, list[Result]] = {}
        for cls, result in zip(sat.roots, sat.results, strict=True):
            self.roots.setdefault((cls, _mask(result.axes)), []).append(result)
        self.found = False  # a plan
        self.called_first = {self.names[s.cls]: s.name for s in reversed(sat.seams) if s.cls in self.names}  # by buffer, its first seam
        self.orders = self.memory_orders()
        self.hollow = frozenset(c for c, name in self.names.items() if any(not a.extent for a in self.orders[name]))
        self.extractor = Extractor(self.graph, target, self.names)
        self.sees: dict[int, frozenset[int]] = {}
        self.measured: list[Cost] = []  # of every kernel met that has a measured time, chosen or not
        self.kernels: dict[tuple[Job, frozenset[int]], tuple[Planned, frozenset[int]] | None] = {}
        self.met: dict[frozenset[Job], Met] = {}
        self.stops: dict[frozenset[Job], frozenset[int]] = {}  # what `evaluate` was asked to store, for each of them

    def memory_orders(self) -> dict[str, tuple[Axis, ...]]:
        """By buffer: a result's axes, a seam's, or else ascending."""
        sat = self.sat
        orders = {r.name: r.axes for r in sat.results}
        seams = {s.cls: s.axes for s in reversed(sat.seams)}
        for c, name in self.names.items():
            axes = seams.get(c, tuple(sat.axes.of(sat.free[c])))
            orders.setdefault(name, tuple(a for a in axes if sat.free[c] & a.bit))
        return orders

    def seen(self, c: int) -> frozenset[int]:
        """The classes that may be stored and that a kernel storing ``c`` meets first."""
        if c not in self.sees:
            self.sees[c] = frozenset(x for x, _ in self.graph.seen_from(c, self.universe))
        return self.sees[c]

    def visible(self, root: int, stop: frozenset[int]) -> frozenset[int]:
        """The classes of ``stop`` that the kernel of ``root`` can meet and read."""
        stop -= self.hollow
        seen = {root}
        queue = [root]
        for c in queue:
            for x in self.seen(c) - seen:
                seen.add(x)
                if x not in stop:
                    queue.append(x)
        return (stop & frozenset(seen)) - {root}

    def kernel(self, job: Job, stop: frozenset[int]) -> tuple[Planned, frozenset[int]] | None:
        """The kernel for ``job`` that reads the classes of ``stop``, and the stored classes that it needs."""
        key = (job, self.visible(job[0], stop))
        if key not in self.kernels:
            self.kernels[key] = self.make(job, key[1])
        return self.kernels[key]

    def make(self, job: Job, stop: frozenset[int]) -> tuple[Planned, frozenset[int]] | None:
        best: tuple[Planned, frozenset[int]] | None = None
        for body in self.bodies(job, stop):
            try:
                planned = self.kernel_of(self.outputs(job, body))
            except Unrealisable as error:
                cuts = {body.classes[v] for v in error.cuts}
                self.needed |= {c for c in cuts if self.pinned.get(c) != "fuse"}
                continue
            if best is None or planned.cost.seconds < best[0].cost.seconds:
                best = planned, body.loads
        return best

    def bodies(self, job: Job, stop: frozenset[int]) -> Iterator[Body]:
        """The one-pass form, and where that has twists the form without: which is faster depends on the size of a row."""
        root, parallel = job
        body = self.extractor.body([root], parallel, stop, one_pass=True)
        if body is not None:
            yield body
        if body is None or body.twisted:
            other = self.extractor.body([root], parallel, stop, one_pass=False)
            if other is not None:
                yield other

    def outputs(self, job: Job, body: Body) -> list[Output]:
        results = self.roots.get(job)
        (val,) = body.vals
        if results is None:
            name = self.names[job[0]]
            return [Output(name, val, self.orders[name])]
        return [Output(r.name, val, r.axes) for r in results]

    def kernel_of(self, outputs: Sequence[Output]) -> Planned:
        """A sketch of the kernel of ``outputs``, with its cost; raises `Unrealisable`."""
        loops = sketch(outputs, self.sat.axes, self.orders)
        made = Planned("+".join(o.buffer for o in outputs), tuple(outputs), loops, cost(loops, self.target))
        if not self.model.times:
            return made
        identity = loop_ir.identity(build("kernel", outputs, self.sat.axes, self.orders))
        settled = self.model.settled(made.cost, identity)
        if settled.measured is not None:
            self.measured.append(settled)
        return replace(made, cost=settled, identity=identity)

    def merged(self, kernels: Sequence[Planned]) -> list[Planned]:
        """``kernels`` with those merged that are faster so; what a pin says is stored is read from memory."""
        pinned = frozenset(self.names[c] for c in self.needed)
        results = frozenset(r.name for r in self.sat.results)
        return merge(kernels, self.kernel_of, self.together, self.sat.axes, results, pinned, self.expired)

    def together(self, outputs: Sequence[Output], read: Set[str]) -> Sequence[Output] | None:
        """``outputs``, of which some were made of others read from memory, as one body that shares a pass over what is in ``read``;
        None where no twist does."""
        classes = {name: c for c, name in self.names.items()} | {r.name: c for c, r in zip(self.sat.roots, self.sat.results, strict=True)}
        if any(set(o.axes) != set(self.orders[o.buffer]) for o in outputs):
            return None  # renamed to merge with another
        roots = [classes[o.buffer] for o in outputs]
        stop = frozenset(classes[name] for name in read if name in classes).difference(roots)
        body = self.extractor.body(roots, reduce(or_, (o.mask for o in outputs)), stop, one_pass=True)
        if body is None or not body.twisted or not body.loads <= stop:
            return None
        return [replace(o, val=val) for o, val in zip(outputs, body.vals, strict=True)]

    def finished(self, n: int, kernel: Planned) -> Planned:
        """Kernel number ``n`` in normal form, called after the tensor that its last output is."""
        name = self.called(n, kernel.outputs[-1].buffer)
        return replace(kernel, name=name, loops=build(name, kernel.outputs, self.sat.axes, self.orders))

    def called(self, n: int, buffer: str) -> str:
        """Kernel number ``n``, whose last output is ``buffer``."""
        return f"k{n}_{self.called_first.get(buffer, buffer)}"

    def expired(self) -> bool:
        return time.perf_counter() > self.deadline

    def evaluate(self, stop: frozenset[int]) -> list[Planned] | None:
        """The plan that stores the classes of ``stop`` where they are met, in launch order; None where none exists, or where
        time is up and another plan was found."""
        while True:
            needed = frozenset(self.needed)
            made = self.jobs(stop | needed)
            if needed != self.needed:
                continue
            ring = self.ring(made) if made is not None else ()
            if made is None or not ring:
                break
            # Equal forms of two classes may each be made of the other: one of the two has to be computed, the wider first.
            spare = [c for c, _ in ring if c in stop and c not in needed]
            if not spare:
                return None
            stop -= {max(spare, key=lambda c: (itemsize(self.sat.dtype[c]), c))}
        if made is None:
            return None
        self.found = True
        self.note(made, stop)
        return self.launch_order(made)

    def jobs(self, stop: frozenset[int]) -> Made | None:
        """The kernels that the results need, with the stored classes that each reads."""
        made: Made = {}
        todo = list(self.roots)
        for job in todo:
            if job in made:
                continue
            if self.found and self.expired():
                return None
            kernel = self.kernel(job, stop)
            if kernel is None:
                return None
            made[job] = kernel
            todo += [self.home(c) for c in sorted(kernel[1])]
        return made

    def producers(self, made: Made, job: Job) -> list[Job]:
        return [self.home(c) for c in sorted(made[job][1])]

    def ring(self, made: Made) -> tuple[Job, ...]:
        """Kernels that need each other's results in a circle, or ()."""
        done: set[Job] = set()
        for root in self.roots:
            path: list[Job] = []
            stack = [(root, False)]
            while stack:
                job, leave = stack.pop()
                if leave:
                    done.add(path.pop())
                elif job in path:
                    return tuple(path[path.index(job) :])
                elif job not in done:
                    path.append(job)
                    stack.append((job, True))
                    stack += [(p, False) for p in self.producers(made, job)]
        return ()

    def launch_order(self, made: Made) -> list[Planned]:
        """Producers first."""
        order: dict[Job, Planned] = {}
        stack = [(root, False) for root in reversed(self.roots)]
        while stack:
            job, ready = stack.pop()
            if ready:
                order.setdefault(job, made[job][0])
            elif job not in order:
                stack.append((job, True))
                stack += [(p, False) for p in reversed(self.producers(made, job))]
        return list(order.values())

    def home(self, c: int) -> Job:
        """The job that stores class ``c`` where its readers look."""
        for (cls, mask), results in self.roots.items():
            if cls == c and results[0].name == self.names[c]:
                return cls, mask
        return c, self.sat.free[c]

    def note(self, made: Made, stop: frozenset[int]) -> None:
        jobs = frozenset(made)
        kernels = [k for k, _ in made.values()]
        seconds = self.seconds(kernels)
        if jobs in self.met and self.met[jobs].seconds <= seconds:
            return
        stored = tuple(sorted(self.names[c] for c, mask in made if (c, mask) not in self.roots))
        flops = sum(sum(k.cost.flops.values()) for k in kernels)
        self.stops[jobs] = stop
        self.met[jobs] = Met(stored, len(kernels), seconds, flops, sum(k.cost.bytes for k in kernels))

    def seconds(self, plan: Sequence[Planned] | None) -> float:
        return self.model.seconds([k.cost for k in plan], [k.identity for k in plan]) if plan is not None else float("inf")

    def climb(self) -> list[Planned] | None:
        """Local search; the order of moves is that of class numbers, so the outcome is reproducible."""
        free = sorted({*self.graph.cuts, *(r for r in self.sat.roots if self.graph.dear[r])} - self.pinned.keys())
        tensors = frozenset(c for c in free if c in self.graph.names)
        contractions = frozenset(c for c in tensors if self.graph.folds_in(c, tensors))
        plans = {start: self.evaluate(start) for start in dict.fromkeys((contractions, tensors, frozenset[int]()))}
        best: list[Planned] | None = None
        for start in sorted(plans, key=lambda s: self.seconds(plans[s]))[:2]:
            plan = self.improve(start, plans[start], free)
            if self.seconds(plan) < self.seconds(best) * (1 - 1e-9):
                best = plan
        return best

    def improve(self, stop: frozenset[int], best: list[Planned] | None, free: Sequence[int]) -> list[Planned] | None:
        """From the plan ``best``, which stores ``stop``, try the moves in turn until a full round of them has changed nothing."""
        idle, n = 0, 0
        moves = [(kind, c, c) for kind in ("toggle", "slide", "drop") for c in free]
        moves += [("swap", *pair) for pair in permutations(free, 2)] if len(free) <= FEW else []
        while idle < len(moves) and not self.expired():
            tried = self.moved(stop, free, *moves[n % len(moves)])
            n, idle = n + 1, idle + 1
            if best is not None:
                progress.note(f"{len(best)} kernels, {self.seconds(best) * 1e6:.1f} us; {len(self.met)} plans tried")
            plan = self.evaluate(tried) if tried is not None else None
            if tried is not None and self.seconds(plan) < self.seconds(best) * (1 - 1e-9):
                stop, best, idle = tried, plan, 0
        return best

    def moved(self, stop: frozenset[int], free: Sequence[int], kind: str, c: int, d: int) -> frozenset[int] | None:
        """Store one value more or one less; or a value in place of those that it is computed from point by point, or of any other: a
        reader takes what is stored, however dear, before an equal form that needs a value that is not; or neither a value nor what is
        computed from it alone, as scores and their maximum: attention in one kernel needs both to go."""
        if kind == "toggle":
            return stop ^ {c}
        if kind == "swap":
            return (stop - {d}) | {c} if d in stop and c not in stop else None
        if kind == "drop":
            return self.dropped(stop, free, c) if c in stop else None
        seen = self.graph.seen_from(c, stop)
        below = {x for x, folded in seen if x in free and not folded and (x, True) not in seen}
        return (stop - below) | {c} if c not in stop and below else None

    def dropped(self, stop: frozenset[int], free: Sequence[int], c: int) -> frozenset[int] | None:
        users = {x for x in stop & set(free) if {seen for seen, _ in self.graph.seen_from(x, stop)} == {c}}
        return stop - users - {c} if users else None


def _mask(axes: Sequence[Axis]) -> int:
    return sum(a.bit for a in axes)


def _stored(graph: EGraph) -> set[int]:
    return {o.stored for options in graph.options for o in options if o.stored >= 0}


def _unique_names(graph: EGraph, classes: frozenset[int]) -> dict[int, str]:
    """A buffer's name for every class that may be stored; algebra's own values are called after their operation."""
    names: dict[int, str] = {}
    taken = {b.name for b in graph.sat.inputs} | {r.name for r in graph.sat.results}
    for c in sorted(classes):
        first = graph.names.get(c)
        if first is not None and c in graph.sat.roots:
            names[c] = first
            continue
        stem = first or _stem(graph.options[c])
        name, n = stem, 0
        while name in taken:
            n += 1
            name = f"{stem}_{n}"
        taken.add(name)
        names[c] = name
    return names


def _stem(options: Sequence[Option]) -> str:
    """What to call a value that has no name in the source program: its fold, else its operation."""
    first = next((o for o in options if o.op in eg.DEAR), options[0])
    return str(first.attr) if first.op in eg.DEAR else first.op
