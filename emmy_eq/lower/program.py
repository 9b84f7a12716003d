"""Lowers a whole program, node by node, and leaves out what no result needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from emmy_eq import tensor_ir as ir
from emmy_eq import torch_ir
from emmy_eq.errors import Unsupported
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.lower.row import bind
from emmy_eq.lower.table import table
from emmy_eq.torch_ir import Ref


def lower(program: torch_ir.Program) -> ir.Program:
    """The Tensor IR of a captured program: same inputs, same results in the same order."""
    b = Builder()
    values: list[tuple[Value, ...]] = [(b.input(i.name, i.shape, i.dtype, i.constant),) for i in program.inputs]
    for node in program.nodes:
        arguments = {name: substitute(x, lambda ref: values[ref.node][ref.output]) for name, x in node.arguments}
        first, b.prefix = len(b.nodes), node.name
        results = apply(b, node.op, arguments, node.source)
        _name(b, first, results, node.name)
        values.append(results)
    outputs = [ir.Output(values[o.value.node][o.value.output].node, o.alias) for o in program.outputs]
    return prune(b, outputs, len(program.inputs))


def substitute(x: Any, resolve: Callable[[Ref], Any]) -> Any:
    """``x`` with each `Ref` in it, at any depth of tuples, resolved."""
    if isinstance(x, tuple):
        return tuple(substitute(y, resolve) for y in x)
    return resolve(x) if isinstance(x, Ref) else x


def apply(b: Builder, op: str, arguments: Mapping[str, Any], where: str) -> tuple[Value, ...]:
    """The results of one operation; raises `Unsupported` where there is no row, or an argument that its row does not know."""
    row = table().get(op)
    if row is None:
        raise Unsupported(op.removeprefix("aten."), "there is no lowering for it", where)
    b.op, b.source = op.split(".")[1], where
    found = row(b, **bind(op, row, arguments, where))
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def infer(
    op: str, arguments: Mapping[str, Any], leaf: Callable[[Ref], tuple[ir.Shape, str]], where: str
) -> tuple[tuple[ir.Shape, str], ...]:
    """Shapes and dtypes of an operation's results, found by lowering it alone; ``leaf`` gives those of its arguments."""
    b = Builder()
    values = {name: substitute(x, lambda ref: b.input(str(ref), *leaf(ref))) for name, x in arguments.items()}
    return tuple((v.shape, v.dtype) for v in apply(b, op, values, where))


def _name(b: Builder, first: int, results: Sequence[Value], name: str) -> None:
    """Each result is named after the torch node; the steps to it are ``<node>_<step>``."""
    for k, value in enumerate(results):
        if value.node >= first:
            b.names[value.node] = name if len(results) == 1 else f"{name}_{k}"


def prune(b: Builder, outputs: Sequence[ir.Output], inputs: int) -> ir.Program:
    """The nodes that outputs need, and all arguments (the first ``inputs`` nodes that are not constants); names made unique."""
    used = {o.node for o in outputs}
    for k in reversed(range(len(b.nodes))):
        if k in used:
            used.update(ir.arguments(b.nodes[k]))
    kept = [k for k, node in enumerate(b.nodes) if k in used or (k < inputs and isinstance(node, ir.Input) and not node.constant)]
    moved = {k: new for new, k in enumerate(kept)}
    nodes = tuple(ir.renumber(b.nodes[k], moved) for k in kept)
    names = _unique([b.names[k] for k in kept])
    return ir.Program(nodes, tuple(replace(o, node=moved[o.node]) for o in outputs), names, tuple(b.sources[k] for k in kept))


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    taken: set[str] = set()
    out = []
    for name in names:
        count, fresh = 0, name
        while fresh in taken:
            count += 1
            fresh = f"{name}_{count}"
        taken.add(fresh)
        out.append(fresh)
    return tuple(out)
