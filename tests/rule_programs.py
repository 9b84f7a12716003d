"""Shared by the tests of rules, e-graph and audit: programs by hand, and what a saturated class holds."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq import rules
from emmy_eq.egraph import ENode, Saturated, saturate
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.to_terms import to_terms

from .term_checks import program


def saturated(b: Builder, *outputs: Value, accuracy: str = "default") -> Saturated:
    """``outputs`` with all their equal forms."""
    return saturate(to_terms(program(b, *outputs)), rules.active(accuracy))


def members(s: Saturated, cls: int, op: str) -> list[ENode]:
    """Those of ``cls`` with that op."""
    return [n for n in s.classes[cls] if n.op == op]


def through(s: Saturated, cls: int, ops: tuple[str, ...]) -> Iterator[int]:
    """Classes that some member of ``cls`` reaches along children by members of the ops named in turn."""
    if not ops:
        yield cls
        return
    for node in members(s, cls, ops[0]):
        for child in node.children:
            yield from through(s, child, ops[1:])


def masks_of_sums(s: Saturated, cls: int) -> set[int]:
    """The axis sets that members of ``cls`` sum over."""
    return {n.attr[1] for n in members(s, cls, "reduce") if n.attr[0] == "sum"}
