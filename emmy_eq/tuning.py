"""Tuning of a program: its best plans are measured, then those that measured times make the search prefer, until its choice is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from emmy_eq import loop_ir
from emmy_eq.codegen.stored import stored_times
from emmy_eq.codegen.tune import Tuner, Tuning, report
from emmy_eq.codegen.tune.session import GPU
from emmy_eq.execute import require_cuda
from emmy_eq.extract.front import front
from emmy_eq.pipeline import Compiled
from emmy_eq.text import table


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """``stored``: buffers between its kernels; ``measured_us``: the kernels' best times together, None where one has none.

    ``chosen``: the next compile takes it.
    """

    stored: tuple[str, ...]
    kernels: int
    model_us: float
    measured_us: float | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Tuned:
    done: Tuning
    plans: tuple[PlanTimes, ...]

    def record(self) -> dict[str, Any]:
        """Times are medians in microseconds."""
        return report.record(self.done) | {"plans": [asdict(p) for p in self.plans]}

    def text(self) -> str:
        """A table of kernels, and where more than one was looked at, one of plans."""
        if len(self.plans) == 1:
            return report.text(self.done)
        rows = [
            [f"{n}{'*' * p.chosen}", str(p.kernels), report.us(p.model_us), report.us(p.measured_us), ", ".join(p.stored) or "-"]
            for n, p in enumerate(self.plans, 1)
        ]
        plans = table(["plan", "kernels", "model us", "measured us", "stored between kernels"], rows)
        return f"{report.text(self.done)}\n\n{plans}\n\n* is the plan that the next compile takes."


@dataclass(frozen=True, slots=True)
class _Plan:
    stored: tuple[str, ...]
    kernels: tuple[loop_ir.Kernel, ...]
    modelled: float  # seconds

    @property
    def identities(self) -> tuple[str, ...]:
        return tuple(map(loop_ir.identity, self.kernels))


def tune(
    compiled: Compiled, path: Path, rows: int = 12, minutes: float | None = None, plans: int = 1, devices: int = 1, ray: str | None = None
) -> Tuned:
    """Measure the kernels of the first ``plans`` plans of the front, ``rows`` schedule rows each; results go into the store at ``path``.

    Then the plan is searched again with the measured times and the model refitted to them, and measured too where it has new kernels,
    until it has none.  Every round measures a kernel more, and the minutes are for all of them.
    """
    if ray is None:
        require_cuda("tune")
    until = time.monotonic() + 60 * minutes if minutes is not None else None
    first = _planned(compiled)
    looked = [first, *(islice(_others(compiled, first, path), plans - 1) if plans > 1 else ())]
    with tuner(compiled, path, devices, ray) as measuring:
        done = measuring.tune([k for plan in looked for k in plan.kernels], rows, minutes)
        while True:
            chosen = _planned(compiled.timed(stored_times(compiled.target, path)))
            known = {k.identity for k in done.kernels}
            new = [k for k in chosen.kernels if loop_ir.identity(k) not in known]
            left = (until - time.monotonic()) / 60 if until is not None else None
            if not new or done.interrupted or (left is not None and left <= 0):
                break
            measuring.say(f"measured times make another plan the best: it stores {', '.join(chosen.stored) or 'nothing'}")
            looked.append(chosen)
            done = measuring.tune(new, rows, left)
    return Tuned(done, tuple(_times([*looked, chosen], chosen, done)))


def tuner(compiled: Compiled, path: Path, devices: int, ray: str | None) -> Tuner:
    if ray is None:
        return Tuner(compiled.target, path, devices, GPU)
    from emmy_eq.codegen.tune.cluster import ray_workers

    return Tuner(compiled.target, path, workers=ray_workers(ray, devices, GPU))


def _planned(compiled: Compiled) -> _Plan:
    return _Plan(tuple(b.name for b in compiled.loop_ir.temps), compiled.launched, sum(k.cost.modelled for k in compiled.plan.kernels))


def _others(compiled: Compiled, first: _Plan, path: Path) -> Iterator[_Plan]:
    """The rest of the front, best first: plans that differ in more than a small value, as `explore` shows them."""
    for c in front(compiled.egraph, compiled.target, compiled.options.place, stored_times(compiled.target, path)):
        plan = _Plan(c.stored, tuple(k.loops for k in c.kernels), c.modelled)
        if set(plan.identities) != set(first.identities):
            yield plan


def _times(plans: Sequence[_Plan], chosen: _Plan, done: Tuning) -> Iterator[PlanTimes]:
    """Plans of the same kernels are one."""
    best = {k.identity: k.best for k in done.kernels}
    different: dict[tuple[str, ...], _Plan] = {}
    for plan in plans:
        different.setdefault(plan.identities, plan)
    for identities, plan in different.items():
        times = [m.microseconds for i in identities if (m := best.get(i)) is not None]
        measured = sum(times) if len(times) == len(identities) else None
        yield PlanTimes(plan.stored, len(identities), plan.modelled * 1e6, measured, identities == chosen.identities)
