"""``compile --explain-accuracy``: which rules matched in a program, and what each may change in its results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from emmy_eq.ops import FLOATS, monoids
from emmy_eq.rule import Rounding, Rule
from emmy_eq.tensor_ir import Node, Program, Reduce, Scan
from emmy_eq.text import table

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled

MAY_CHANGE: Mapping[Rounding, str] = {
    Rounding.EXACT: "nothing: the same bits, NaN and -0.0 included",
    Rounding.REASSOCIATES: "the last digits: the same real number, rounded in another order",
    Rounding.CONTRACTS: "the last digits, towards the exact value: some roundings are left out",
    Rounding.APPROXIMATES: "digits within the bound that the rule states",
}
# Of the contract, not of the rules: what kernels do under every accuracy.
_KERNELS = (
    "Under every accuracy a float sum is added in the order of its kernel's schedule, and a sum of products by fused multiply-adds; "
    "run --check compares the error against float64 with eager's."
)


def in_order(program: Program) -> Program:
    """``program`` with its float sums and products, and their scans, taken in order (`emmy_eq.ops.Monoid`): what ``strict`` computes."""
    return replace(program, nodes=tuple(_ordered(program, n) for n in program.nodes))


def _ordered(program: Program, node: Node) -> Node:
    name = f"serial_{node.op}" if isinstance(node, Reduce | Scan) else ""
    if not isinstance(node, Reduce | Scan) or name not in monoids() or node.dtype not in FLOATS or 0 in program.nodes[node.arg].shape:
        return node
    return replace(node, op=name)


def explain(compiled: Compiled) -> str:
    """The contract, a table of the rules that matched a class of rounding, and what holds beside the rules.

    A rule that matched has put forms into the e-graph; whether the kernels use them is what ``emmy-eq explain`` says.
    """
    found: dict[Rounding, list[Rule]] = defaultdict(list)
    matches = compiled.egraph.report.matches
    for rule in compiled.rules:
        if matches.get(rule.name):
            found[rule.rounding].append(rule)
    admitted = max((rule.rounding for rule in compiled.rules), default=Rounding.EXACT)
    parts = [f"accuracy {compiled.options.accuracy}: rules up to {admitted.name.lower()} take part."]
    for rounding, may in MAY_CHANGE.items():
        if found[rounding]:
            rows = [[rule.name, str(rule), str(matches[rule.name])] for rule in found[rounding]]
            parts.append(f"{rounding.name.lower()} may change {may}\n{table(['rule', 'rewrite', 'matches'], rows)}")
    return "\n\n".join([*parts, _KERNELS])
