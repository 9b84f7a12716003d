"""Which rewrites made the chosen program, as before/after diffs of its Loop IR, rule by rule.

The e-graph has no order of rewrites, so one is made: start with the structural rules alone, admit the rules that matched
one at a time in the library's order, and keep each one after which a different program is chosen.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import loop_ir
from emmy_eq.rule import Phase, Rule

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled

_STRUCTURE = (Phase.FUSION, Phase.CUT)


@dataclass(frozen=True, slots=True)
class Step:
    """Admitting ``rule`` (after ``waiting``, which changed nothing until then) turned ``before`` into ``after``."""

    rule: Rule
    waiting: tuple[Rule, ...]
    before: str
    after: str

    def diff(self) -> str:
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=2)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def steps(compiled: Compiled) -> Iterator[Step]:
    """The steps in order; their last ``after`` is the Loop IR of ``compiled``, unless two rules need each other's limits."""
    matched = {name.split(".")[0] for name in compiled.egraph.report.matches}
    admitted = [rule for rule in compiled.rules if rule.phase in _STRUCTURE]
    before = loop_ir.show(compiled.restricted(admitted).loop_ir)
    waiting: list[Rule] = []
    for rule in compiled.rules:
        if rule in admitted or rule.name not in matched:
            continue
        admitted.append(rule)
        after = loop_ir.show(compiled.restricted(admitted).loop_ir)
        if after == before:
            waiting.append(rule)
            continue
        yield Step(rule, tuple(waiting), before, after)
        before, waiting = after, []
