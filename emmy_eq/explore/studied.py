"""One program on one target, with the front of its plans: what every view of the explorer shows."""

from __future__ import annotations

from dataclasses import dataclass

from emmy_eq.codegen.stored import stored_times
from emmy_eq.extract.front import Candidate, front
from emmy_eq.pipeline import Compiled


@dataclass(frozen=True, slots=True)
class Study:
    """``plans``: best first."""

    compiled: Compiled
    plans: tuple[Candidate, ...]


def study(compiled: Compiled) -> Study:
    return Study(compiled, tuple(front(compiled.egraph, compiled.target, compiled.options.place, stored_times(compiled.target))))


def shown(found: Study) -> float:
    """Seconds at which a bar ends: a plan that takes longer would make the others' bars too short to be compared."""
    return 5 * min(plan.seconds for plan in found.plans)
