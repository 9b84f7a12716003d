"""``compile --explain-accuracy``: which rules matched in a program, and what each may change in its results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from emmy_eq.ops import exact, ops
from emmy_eq.rule import Rounding, Rule
from emmy_eq.text import table

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled

MAY_CHANGE: Mapping[Rounding, str] = {
    Rounding.EXACT: "exact: changes nothing, the same bits, NaN and -0.0 included",
    Rounding.REASSOCIATES: "reassociates: may change the last digits; the same real number, rounded in another order",
    Rounding.CONTRACTS: "contracts: may change the last digits, towards the exact value; some roundings are left out",
    Rounding.APPROXIMATES: "approximates: may change digits, within the bound that the rule states",
}
_UNITS: Mapping[str, tuple[str, str]] = {
    "k16": ("16-bit products on tensor cores", "the last digits: products are exact, tensor cores cut off as they add"),
    "k8": ("f32 products of tf32 values", "about three of seven digits: operands are rounded to 11 bits"),
    "k8x3": ("f32 products as three of tf32 values", "the last digit; what operands have below 2^-136; inf times less than 2^-136 is NaN"),
}
_STRICT = "Sums are added in order, one element after the other, products and sums rounded each: the bits of Tensor IR op by op."
_OTHERS = "A float sum is added in the order of its kernel's schedule; run --check compares the error against float64 with eager's."


def explain(compiled: Compiled) -> str:
    """The contract; a table of the rules that matched a class of rounding; one of how the kernels compute what may differ.

    A rule that matched has put forms into the e-graph; whether the kernels use them is what ``emmy-eq explain`` says.
    """
    found: dict[Rounding, list[Rule]] = defaultdict(list)
    matches = compiled.saturation.matches
    for rule in compiled.rules:
        if matches.get(rule.name):
            found[rule.rounding].append(rule)
    admitted = max((rule.rounding for rule in compiled.rules), default=Rounding.EXACT)
    kinds = ", ".join(rounding.name.lower() for rounding in MAY_CHANGE if rounding <= admitted)
    parts = [f"accuracy {compiled.options.accuracy} uses rules of these kinds: {kinds}"]
    if compiled.left_out:
        parts.append(f"left out, since it does not admit them: {', '.join(rule.name for rule in compiled.left_out)}")
    for rounding, may in MAY_CHANGE.items():
        if found[rounding]:
            rows = [[rule.name, str(rule), str(matches[rule.name])] for rule in found[rounding]]
            parts.append(f"{may}\n{table(['rule', 'rewrite', 'matches'], rows)}")
    if kernels := _computed(compiled):
        parts.append(table(["kernel", "computes", "may change"], kernels))
    return "\n\n".join([*parts, _STRICT if (compiled.options.accuracy, admitted) == ("strict", Rounding.EXACT) else _OTHERS])


def _computed(compiled: Compiled) -> list[list[str]]:
    """What each kernel does that rounds otherwise than its operations one by one."""
    from emmy_eq.codegen.kernel_ir import Let, Set, walk

    rows = []
    for tile, kernel in zip(compiled.tile_ir, compiled.kernel_ir, strict=True):
        used = {s.op for s in walk.statements(kernel.body) if isinstance(s, Let | Set)}
        rows += [[kernel.name, *_UNITS[s.atom]] for _, s in tile.schedule.reduce if s.atom in _UNITS]
        if "fma" in used:
            rows.append([kernel.name, "fused multiply-adds", "the last digit, towards the exact value"])
        approximate = {op: row.fast for op in sorted(used) if op != exact(op) and (row := ops()[exact(op)]).fast}
        rows += [[kernel.name, op, f"it is {fast.bound}"] for op, fast in approximate.items() if fast]
    return rows
