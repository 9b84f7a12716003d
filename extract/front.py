"""The front of plans: those that no other beats in time, launches, bytes and flops at once, and what each of their cuts trades."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from emmy_eq.egraph import Saturated
from emmy_eq.extract.climb import Search
from emmy_eq.extract.measured import NONE, Model
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.pinned import Place
from emmy_eq.extract.plan import kernels
from emmy_eq.extract.targets import Target
from emmy_eq.ops import itemsize
from emmy_eq.text import binary

MOST = 8  # plans of a front: more are not read
SLOWEST = 100  # times as long as the chosen one: a plan that says no more than that it is none
LITTLE = 5e-4  # a change of the flops that is not worth a word


@dataclass(frozen=True, slots=True)
class Trade:
    """The plan with ``cut`` stored against the same plan without: what storing it adds, ``size`` bytes being the buffer's."""

    cut: str
    size: int
    bytes: int
    flops: tuple[int, int]  # without, with
    launches: int
    seconds: float

    def __str__(self) -> str:
        """As ``store h: +4 KiB, 15/16 fewer flops, +1 launch, -3.2 us``; the bytes are memory traffic."""
        parts = [f"{'+' if self.bytes >= 0 else '-'}{binary(abs(self.bytes))}"] if self.bytes else []
        parts += [fewer(*self.flops)] if abs(self.flops[0] - self.flops[1]) >= LITTLE * self.flops[0] else []
        parts += [f"{self.launches:+d} {'launch' if abs(self.launches) == 1 else 'launches'}"] if self.launches else []
        return f"store {self.cut}: {', '.join([*parts, f'{self.seconds * 1e6:+.2f} us'])}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan.  ``kernels`` in launch order, merged; ``trades``: one a stored value that the plan could do without."""

    stored: tuple[str, ...]
    kernels: tuple[Planned, ...]
    trades: tuple[Trade, ...]
    chosen: bool

    @property
    def seconds(self) -> float:
        return sum(k.cost.seconds for k in self.kernels)

    @property
    def modelled(self) -> float:
        return sum(k.cost.modelled for k in self.kernels)

    @property
    def measured(self) -> float | None:
        """None where the time of a kernel is not known."""
        known = [k.cost.measured for k in self.kernels if k.cost.measured is not None]
        return sum(known) if len(known) == len(self.kernels) else None

    @property
    def bytes(self) -> int:
        return sum(k.cost.bytes for k in self.kernels)

    @property
    def l2_bytes(self) -> int:
        return sum(k.cost.l2_bytes for k in self.kernels)

    @property
    def flops(self) -> int:
        return _flops(self.kernels)

    @property
    def launches(self) -> int:
        return len(self.kernels)


def front(sat: Saturated, target: Target, place: Place = "auto", times: Mapping[str, float] = NONE, most: int = MOST) -> list[Candidate]:
    """The front among the plans that a search meets, best first; the chosen one and the extremes (all fused, all cut) are in it."""
    finder = Search(sat, target, place, model=Model(times))
    chosen = kernels(finder, place)
    wanted = (frozenset[int](), frozenset(finder.graph.cuts)) if place == "auto" else ()
    extremes = [plan for stop in wanted if (plan := finder.evaluate(stop)) is not None]
    met = sorted(finder.met, key=lambda jobs: (finder.met[jobs].seconds, finder.met[jobs].stored))
    points = {jobs: (m.seconds, m.kernels, m.bytes, m.flops) for jobs, m in finder.met.items()}
    stops = [finder.stops[jobs] for jobs in met if not _beaten(points[jobs], points.values())][:most]
    plans = [chosen, *(finder.merged(finder.evaluate(stop) or []) for stop in stops), *extremes]
    different = {_identity(plan): plan for plan in reversed(plans) if plan}
    limit = SLOWEST * sum(k.cost.seconds for k in chosen)
    found = [_candidate(finder, p, p is chosen) for p in different.values() if sum(k.cost.seconds for k in p) <= limit]
    return sorted(found, key=lambda c: (c.seconds, not c.chosen, c.stored))


def _identity(plan: Sequence[Planned]) -> frozenset[str]:
    """Plans that store the same values in the same kernels are one."""
    return frozenset(k.name for k in plan)


def _beaten(point: tuple[float, ...], others: Collection[tuple[float, ...]]) -> bool:
    return any(o != point and all(x <= y for x, y in zip(o, point, strict=True)) for o in others)


def _candidate(finder: Search, plan: Sequence[Planned], chosen: bool) -> Candidate:
    results = {r.name for r in finder.sat.results}
    stored = tuple(sorted(o.buffer for k in plan for o in k.outputs if o.buffer not in results))
    classes = {name: c for c, name in finder.names.items()}
    stop = frozenset(classes[name] for name in stored)
    trades = [t for name in stored if (t := _trade(finder, name, stop, classes[name])) is not None]
    return Candidate(stored, tuple(finder.finished(n, k) for n, k in enumerate(plan)), tuple(trades), chosen)


def _trade(finder: Search, name: str, stop: frozenset[int], cut: int) -> Trade | None:
    """None where no plan does without, or where the cut is pinned; before merging, so that the difference is the cut's own."""
    cost, without = finder.evaluate(stop), finder.evaluate(stop - {cut})
    if cost is None or without is None or _identity(cost) == _identity(without):
        return None
    sat = finder.sat
    return Trade(
        cut=name,
        size=prod(a.extent for a in sat.axes.of(sat.free[cut])) * itemsize(sat.dtype[cut]),
        bytes=sum(k.cost.bytes for k in cost) - sum(k.cost.bytes for k in without),
        flops=(_flops(without), _flops(cost)),
        launches=len(cost) - len(without),
        seconds=sum(k.cost.seconds for k in cost) - sum(k.cost.seconds for k in without),
    )


def _flops(plan: Sequence[Planned]) -> int:
    return sum(sum(k.cost.flops.values()) for k in plan)


def fewer(before: int, after: int) -> str:
    """The change of ``before`` to ``after`` as a fraction that people read: ``15/16 fewer flops``, ``3x the flops``."""
    if after > before:
        return f"{after / max(before, 1):.3g}x the flops"
    share = Fraction(before - after, before)
    near = share.limit_denominator(64)
    plain = near.denominator <= 8 or near.numerator == near.denominator - 1
    exact = plain and abs(float(near - share)) < 0.002 and 0 < near < 1
    return f"{near if exact else f'{100 * float(share):.1f} %'} fewer flops"
