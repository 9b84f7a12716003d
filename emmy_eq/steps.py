"""Which rules lead from a program to its chosen kernels, each with what it changed, as before/after diffs of Loop IR.

The e-graph has no order of rewrites, so one is made: start with the structural rules alone, admit the rules that matched
one at a time in the library's order, and keep each one after which a different program is chosen.  Every step is a fact: with the
rules before it the first program was chosen, with it the second.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from emmy_eq import loop_ir
from emmy_eq.rule import Phase, Rule

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled

_STRUCTURE = (Phase.FUSION, Phase.CUT)


@dataclass(frozen=True, slots=True)
class Step:
    """Admitting ``rule`` turned ``before`` into ``after``; it needed each of ``waiting``, which had changed nothing until then.

    A value keeps its name from step to step.
    """

    rule: Rule
    waiting: tuple[Rule, ...]
    before: loop_ir.Program
    after: loop_ir.Program

    def diff(self) -> str:
        before, after = (loop_ir.show(program).splitlines() for program in (self.before, self.after))
        lines = difflib.unified_diff(before, after, lineterm="", n=2)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))

    def __str__(self) -> str:
        needs = f"\n(with {', '.join(r.name for r in self.waiting)})" if self.waiting else ""
        return f"{self.rule.name}: {self.rule}{needs}\n{self.diff()}"

    def record(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "rule": self.rule.name,
            "rewrite": str(self.rule),
            "why": self.rule.doc,
            "rounding": self.rule.rounding.name.lower(),
            "with": [r.name for r in self.waiting],
            "before": loop_ir.show(self.before),
            "after": loop_ir.show(self.after),
        }


def steps(compiled: Compiled) -> list[Step]:
    """The steps in order; their last ``after`` is the Loop IR of ``compiled``, unless two rules need each other's limits.

    That one has the names that ``--ir loop`` prints; what comes before is named after it, step by step.
    """
    named: list[Step] = []
    for step in reversed(list(_steps(compiled))):
        after = named[-1].before if named else step.after
        named.append(replace(step, before=loop_ir.alike(step.before, after), after=after))
    return named[::-1]


def _steps(compiled: Compiled) -> Iterator[Step]:
    """As `steps`, each program in names of its own."""
    admitted = [rule for rule in compiled.rules if rule.phase in _STRUCTURE]
    before = _chosen(compiled, admitted)
    waiting: list[Rule] = []
    for rule in compiled.rules:
        if rule in admitted or rule.name not in compiled.saturation.matches:
            continue
        after = _chosen(compiled, [*admitted, *waiting, rule])
        if after == before:
            waiting.append(rule)
            continue
        needed = _needed(compiled, admitted, waiting, rule, after)
        yield Step(rule, tuple(needed), before, after)
        admitted += [*needed, rule]
        before, waiting = after, [w for w in waiting if w not in needed]


def _needed(compiled: Compiled, admitted: Sequence[Rule], waiting: Sequence[Rule], rule: Rule, after: loop_ir.Program) -> list[Rule]:
    """Those of ``waiting`` without which ``rule`` does not lead to ``after``."""
    needed = list(waiting)
    for w in waiting:
        fewer = [x for x in needed if x is not w]
        if _chosen(compiled, [*admitted, *fewer, rule]) == after:
            needed = fewer
    return needed


def _chosen(compiled: Compiled, rules: Sequence[Rule]) -> loop_ir.Program:
    """The program that these rules lead to; in the library's order, on which a tie may hang."""
    return compiled.restricted([r for r in compiled.rules if r in rules]).loop_ir


def show(found: Sequence[Step]) -> str:
    """The chain, a paragraph a step."""
    if not found:
        return "No rule made a difference: the kernels are those of the program as it was written."
    count = len(found)
    numbered = (f"{n}. {step}" for n, step in enumerate(found, 1))
    return "\n\n".join([f"{count} step{'s' if count > 1 else ''} from the program, fused as it was written, to its kernels.", *numbered])
