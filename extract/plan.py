"""A plan: which values are stored, and the kernel that computes each of them.

`search` finds one: the local search of `emmy_eq.extract.climb`, then merging of kernels.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emmy_eq.egraph import Saturated
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.extract.climb import FEW, Met, Search
from emmy_eq.extract.measured import NONE, PLAIN, Model
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.pinned import Place
from emmy_eq.extract.targets import Target
from emmy_eq.terms import InputBuf, Result


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels in launch order with their modelled costs; ``met``: all plans that were looked at, best first."""

    kernels: tuple[Planned, ...]
    results: tuple[Result, ...]
    inputs: tuple[InputBuf, ...]
    target: Target
    met: tuple[Met, ...]
    search_seconds: float
    model: Model = PLAIN

    @property
    def seconds(self) -> float:
        return sum(k.cost.seconds for k in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(k.cost.bytes for k in self.kernels)

    @property
    def flops(self) -> int:
        return sum(sum(k.cost.flops.values()) for k in self.kernels)


def search(sat: Saturated, target: Target, place: Place = "auto", seconds: float = 60.0, times: Mapping[str, float] = NONE) -> Plan:
    """The plan that takes the least time on ``target``.

    ``place``: ``auto``, ``fuse`` (store only what must be), ``cut`` (store at every cut), or seams pinned to ``fuse`` or ``cut``, as a
    mapping or as text ``SEAM=fuse,...``; the rest is searched.  Raises `InvalidInput` for a name that is no seam.
    ``seconds`` is a last resort: within it the result depends on the other arguments alone.
    ``times``: measured seconds by kernel identity, and of whole plans by `emmy_eq.extract.measured.together`.  They count in place of
    modelled ones, correct the model for the kernels without, and the search is repeated until the plan stays the same.
    """
    start = time.perf_counter()
    model = Model(times)
    known: set[tuple[str, ...]] = set()
    settled: list[Plan] = []  # whose kernels were all measured
    while True:
        found, finders = _found(sat, target, place, start, seconds, model)
        chosen = tuple(k.identity for k in found.kernels)
        settled += [found] if all(k.cost.measured is not None for k in found.kernels) else []
        if not times or chosen in known or time.perf_counter() > start + seconds:
            return min([found, *settled], key=lambda p: finders[0].seconds(p.kernels))
        known.add(chosen)
        model = model.refitted(c for f in finders for c in f.measured)


def _found(sat: Saturated, target: Target, place: Place, start: float, seconds: float, model: Model) -> tuple[Plan, list[Search]]:
    """The best plan under ``model``.  Small programs are also searched with each value pinned that it does not store: where an equal form
    looks cheaper to the extraction of a kernel's body, nothing else makes the kernel read the value."""
    finders = [Search(sat, target, place, start + seconds, model)]
    done = kernels(finders[0], place)
    if place == "auto" and len(finders[0].graph.cuts) <= FEW:
        stored = {o.buffer for k in done for o in k.outputs}
        for name in [finders[0].names[c] for c in finders[0].graph.cuts if c not in sat.roots]:
            if name in stored:
                continue
            finders.append(Search(sat, target, {name: "cut"}, start + seconds, model))
            try:
                other = kernels(finders[-1], place)
            except InvalidInput:
                continue  # no plan stores it
            done = min(done, other, key=finders[0].seconds)
    met = tuple(sorted(finders[0].met.values(), key=lambda m: (m.seconds, m.stored)))
    kept = tuple(finders[0].finished(n, k) for n, k in enumerate(done))
    return Plan(kept, sat.results, sat.inputs, target, met, time.perf_counter() - start, model), finders


def kernels(finder: Search, place: Place) -> Sequence[Planned]:
    """The kernels of the best plan that ``finder`` meets, in launch order; raises `InvalidInput` where none honours the pins,
    `Unsupported` where there is none."""
    if place == "cut":
        found = finder.evaluate(frozenset(finder.graph.cuts))
    else:
        found = finder.evaluate(frozenset()) if place == "fuse" else finder.climb()
    if found is None and finder.pinned:
        raise unhonoured(finder)
    if found is None:
        raise Unsupported("program", "its values need each other's kernels in a circle")
    check(finder, [o.buffer for k in found for o in k.outputs])
    return found if place == "cut" else finder.merged(found)


def check(finder: Search, stored: Sequence[str]) -> None:
    """Raise `InvalidInput` unless what is pinned to ``cut`` is among the buffers ``stored``; of values without elements none is."""
    if not {finder.names[c] for c, value in finder.pinned.items() if value == "cut" and c not in finder.hollow}.issubset(stored):
        raise unhonoured(finder)


def unhonoured(finder: Search) -> InvalidInput:
    pins = ",".join(f"{name}={value}" for name, value in finder.pins.items())
    return InvalidInput(f"place {pins}", "no plan of kernels that the rules lead to honours it; pin fewer values")
