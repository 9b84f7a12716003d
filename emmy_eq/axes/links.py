"""The pairs of dims, or parts of dims, that the reads of a program run along together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emmy_eq import index as ix
from emmy_eq.tensor_ir import Const, Gather, IndexMap, Input, Iota, Node, Program, Reduce, Shape, arguments


@dataclass(frozen=True, slots=True)
class Segment:
    """The digits of dim ``dim`` of tensor ``node`` between suffix products ``low`` and ``high``."""

    node: int
    dim: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Link:
    """Two segments that run together in one read; ``group`` names the operand dim that they describe between them."""

    reader: Segment
    operand: Segment
    group: tuple[int, int, int]  # (reader, operand, operand's dim)
    rank: int  # 0: elementwise and reductions, 1: index maps, 2: reads of inputs


def links(program: Program) -> Iterator[Link]:
    """Every pair of segments that a read would like to share."""
    for n, node in enumerate(program.nodes):
        for k, arg in enumerate(arguments(node)):
            operand = program.nodes[arg]
            if isinstance(operand, Const | Iota):
                continue
            mapped = node if isinstance(node, IndexMap | Gather) and k == 0 else None  # a Gather's indices have its own shape
            pairs = _kept(n, node, arg, operand) if mapped is None else _mapped(n, mapped, arg, operand)
            rank = 2 if isinstance(operand, Input) else int(mapped is not None)
            yield from (Link(reader, found, (n, arg, found.dim), rank) for reader, found in pairs)


def _kept(n: int, node: Node, arg: int, operand: Node) -> Iterator[tuple[Segment, Segment]]:
    """Dims in order, less those that ``node`` reduces."""
    kept = (d for d in range(len(operand.shape)) if not isinstance(node, Reduce) or d not in node.dims)
    for out, dim in enumerate(kept):
        yield Segment(n, out, 1, operand.shape[dim]), Segment(arg, dim, 1, operand.shape[dim])


def _mapped(n: int, node: IndexMap | Gather, arg: int, operand: Node) -> Iterator[tuple[Segment, Segment]]:
    for dim, x in enumerate(node.index):
        yield from _tiling(n, node.shape, x, arg, dim, operand.shape[dim])


def _tiling(n: int, shape: Shape, x: ix.Idx, arg: int, dim: int, extent: int) -> Iterator[tuple[Segment, Segment]]:
    """The segments that ``x`` pairs up, where its digits cover [0, extent) exactly once (mixed radix)."""
    found = digits(x, shape)
    if found is None or extent == 1:
        return
    weight = 1
    for digit in reversed(found):
        if digit.weight != weight:
            return
        weight *= digit.high // digit.low
    if weight != extent:
        return
    for digit in found:
        high = digit.weight * (digit.high // digit.low)
        yield Segment(n, int(digit.name[1:]), digit.low, digit.high), Segment(arg, dim, digit.weight, high)


def digits(x: ix.Idx, shape: Shape) -> tuple[ix.Digit, ...] | None:
    """``x`` as digits of the dims of ``shape``; None for other forms, data-dependent ones among them."""
    extents = {f"d{d}": extent for d, extent in enumerate(shape)}
    if x.op == "var" and x.name in extents:
        return (ix.Digit(x.name, 1, extents[x.name], 1),)
    if 0 in shape or not ix.variables(x) <= set(extents):
        return None
    return ix.digits(ix.simplify(x, extents), extents)
