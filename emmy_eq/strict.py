"""``accuracy=strict``: float sums and products in a stated order."""

from __future__ import annotations

from dataclasses import replace

from emmy_eq.ops import FLOATS, monoids
from emmy_eq.tensor_ir import Node, Program, Reduce, Scan


def in_order(program: Program) -> Program:
    """``program`` with its float sums and products, and their scans, taken in order (`emmy_eq.ops.Monoid`): what ``strict`` computes."""
    return replace(program, nodes=tuple(_ordered(program, n) for n in program.nodes))


def _ordered(program: Program, node: Node) -> Node:
    name = f"serial_{node.op}" if isinstance(node, Reduce | Scan) else ""
    if not isinstance(node, Reduce | Scan) or name not in monoids() or node.dtype not in FLOATS or 0 in program.nodes[node.arg].shape:
        return node
    return replace(node, op=name)
