"""Tuning of a program: the kernels of its best plans are measured, then those that measured times make the search prefer, then the
fastest plans whole, until the choice is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from emmy_eq import loop_ir
from emmy_eq.codegen.stored import stored_times
from emmy_eq.codegen.tune import Tuner, Tuning, report
from emmy_eq.codegen.tune.session import GPU
from emmy_eq.execute import require_cuda
from emmy_eq.extract.front import front
from emmy_eq.extract.loops import to_loops
from emmy_eq.extract.measured import together
from emmy_eq.extract.plan import Plan
from emmy_eq.pipeline import Compiled
from emmy_eq.text import table

NEAR = 1.1  # times the fastest plan's kernels together, up to which plans are measured whole


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """``stored``: buffers between its kernels; ``measured_us``: of the whole plan where it was near the best, else the kernels' best times
    together; None where one has none.

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
    """``program``: None where plans are those of a part of it, which is not run by itself."""

    stored: tuple[str, ...]
    kernels: tuple[loop_ir.Kernel, ...]
    modelled: float  # seconds
    program: loop_ir.Program | None = None

    @property
    def identities(self) -> tuple[str, ...]:
        return tuple(map(loop_ir.identity, self.kernels))

    def measured(self, best: Mapping[str, float], whole: Mapping[str, float]) -> float | None:
        """Seconds, from those of kernels and of whole plans; None where one has none."""
        times = [best[i] for i in self.identities if i in best]
        return whole.get(together(self.identities), sum(times)) if len(times) == len(self.identities) else None


def tune(
    compiled: Compiled, path: Path, rows: int = 12, minutes: float | None = None, plans: int = 1, devices: int = 1, ray: str | None = None
) -> Tuned:
    """Measure the kernels of the first ``plans`` plans of the front, ``rows`` schedule rows each; results go into the store at ``path``.

    Then the plan is searched again with the measured times and the model refitted to them, and measured too where it has new kernels,
    until it has none.  Plans near the best are measured whole then: kernels in turn may take another time than each alone.  Every round
    measures a kernel or a plan more, and the minutes are for all of them.
    """
    if ray is None:
        require_cuda("tune")
    until = time.monotonic() + 60 * minutes if minutes is not None else None
    first = _planned(compiled, compiled.plan)
    looked = [first, *(islice(_others(compiled, first, path), plans - 1) if plans > 1 else ())]
    with tuner(compiled, path, devices, ray) as measuring:
        done = measuring.tune([k for plan in looked for k in plan.kernels], rows, minutes)
        whole: set[str] = set()  # plans that were measured so, or should have been
        while True:
            times = stored_times(compiled.target, path)
            chosen = _planned(compiled, compiled.timed(times).plan)
            known = {k.identity for k in done.kernels}
            new = [k for k in chosen.kernels if loop_ir.identity(k) not in known]
            left = (until - time.monotonic()) / 60 if until is not None else None
            if done.interrupted or (left is not None and left <= 0):
                break
            if new:
                measuring.say(f"measured times make another plan the best: it stores {', '.join(chosen.stored) or 'nothing'}")
                looked.append(chosen)
                done = measuring.tune(new, rows, left)
                continue
            programs = {together(p.identities): p.program for p in _near([*looked, chosen], times)}
            waiting = {name: program for name, program in programs.items() if program is not None and name not in whole}
            if not waiting:
                break
            whole |= waiting.keys()
            for program in waiting.values():
                measuring.together(program)
    return Tuned(done, tuple(_times([*looked, chosen], chosen, done, times)))


def tuner(compiled: Compiled, path: Path, devices: int, ray: str | None) -> Tuner:
    if ray is None:
        return Tuner(compiled.target, path, devices, GPU)
    from emmy_eq.codegen.tune.cluster import ray_workers

    return Tuner(compiled.target, path, workers=ray_workers(ray, devices, GPU))


def _planned(compiled: Compiled, plan: Plan) -> _Plan:
    program = to_loops(plan)
    launched = tuple(k for k in program.kernels if any(0 not in b.shape for b in k.outputs))
    whole = program if not compiled.layers and len(launched) == len(program.kernels) > 1 else None
    return _Plan(tuple(b.name for b in program.temps), launched, sum(k.cost.modelled for k in plan.kernels), whole)


def _near(plans: Sequence[_Plan], times: Mapping[str, float]) -> list[_Plan]:
    """Those whose kernels together take little more than the fastest's, if they are several."""
    timed = {p.identities: (seconds, p) for p in plans if (seconds := p.measured(times, times)) is not None}
    least = min((seconds for seconds, _ in timed.values()), default=0.0)
    near = [p for seconds, p in timed.values() if seconds <= NEAR * least]
    return near if len(near) > 1 else []


def _others(compiled: Compiled, first: _Plan, path: Path) -> Iterator[_Plan]:
    """The rest of the front, best first: plans that differ in more than a small value, as `explore` shows them."""
    for c in front(compiled.egraph, compiled.target, compiled.options.place, stored_times(compiled.target, path)):
        plan = _planned(compiled, replace(compiled.plan, kernels=c.kernels))
        if set(plan.identities) != set(first.identities):
            yield plan


def _times(plans: Sequence[_Plan], chosen: _Plan, done: Tuning, whole: Mapping[str, float]) -> Iterator[PlanTimes]:
    """Plans of the same kernels are one."""
    best = {k.identity: k.best.microseconds * 1e-6 for k in done.kernels if k.best is not None}
    different: dict[tuple[str, ...], _Plan] = {}
    for plan in plans:
        different.setdefault(plan.identities, plan)
    for identities, plan in different.items():
        seconds = plan.measured(best, whole)
        measured = seconds * 1e6 if seconds is not None else None
        yield PlanTimes(plan.stored, len(identities), plan.modelled * 1e6, measured, identities == chosen.identities)
