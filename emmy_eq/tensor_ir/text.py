"""Tensor IR as text, one node a line, and back.

x: f32[4,8] = input
softmax_max: f32[4] = reduce max(x) over 1
softmax_view: f32[4,8] = softmax_max[d0]
softmax_sub: f32[4,8] = sub(x, softmax_view)
picked: f32[3,8] = table[g0, d1] where ids
return softmax_sub, x_1 -> x
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.ops import FLOATS
from emmy_eq.tensor_ir.grammar import Const, Elementwise, Gather, IndexMap, Input, Iota, Node, Output, Program, Reduce, Scan, Shape
from emmy_eq.terms import from_bits, read_bits
from emmy_eq.text import items


def show(program: Program) -> str:
    """The program as text that `parse` reads back; a line ``# position`` gives the source of the nodes that follow it."""
    lines: list[str] = []
    here = ""
    for name, node, source in zip(program.names, program.nodes, program.sources, strict=True):
        if source != here:
            lines.append(f"# {source}".rstrip())
            here = source
        lines.append(f"{name}: {node.dtype}[{','.join(map(str, node.shape))}] = {_body(program, node)}")
    results = ", ".join(program.names[o.node] + (f" -> {o.alias}" if o.alias else "") for o in program.outputs)
    return "\n".join([*lines, f"return {results}".rstrip()])


def _body(program: Program, node: Node) -> str:
    names = program.names
    if isinstance(node, Input):
        return "constant" if node.constant else "input"
    if isinstance(node, Const):
        return f"const {_literal(node)}"
    if isinstance(node, Iota):
        return "iota"
    if isinstance(node, Elementwise):
        return f"{node.op}({', '.join(names[a] for a in node.args)})"
    if isinstance(node, Reduce):
        return f"reduce {node.op}({names[node.arg]}) over {','.join(map(str, node.dims))}"
    if isinstance(node, Scan):
        return f"scan {node.op}({names[node.arg]}) along {node.dim}"
    read = f"{names[node.arg]}[{', '.join(map(str, node.index))}]"
    return read if isinstance(node, IndexMap) else f"{read} where {', '.join(names[i] for i in node.indices)}"


def _literal(node: Const) -> str:
    """The shortest text that reads back to the same bits, or the bits (a NaN with a payload)."""
    value = from_bits(node.dtype, node.bits)
    texts = (str(value), repr(float(value))) if node.dtype in FLOATS else (str(value),)
    return next((t for t in texts if read_bits(node.dtype, t) == node.bits), hex(node.bits))


_LINE = re.compile(r"(\w+): (\w+)\[([\d,]*)\] = (.*)")
_CALL = re.compile(r"(\w+)\(([\w, ]*)\)")
_FOLD = re.compile(r"(reduce|scan) (\w+)\((\w+)\) (?:over|along) ([\d,]+)")
_READ = re.compile(r"(\w+)\[(.*)\](?: where ([\w, ]*))?")


def parse(text: str) -> Program:
    """The program that `show` printed; raises `VerifyError` with the line that it cannot read."""
    nodes: list[Node] = []
    names: dict[str, int] = {}
    sources: list[str] = []
    here = ""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines[:-1]:
        if line.startswith("#"):
            here = line[1:].strip()
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise VerifyError("Tensor", line, "this is not `name: dtype[shape] = operation`")
        name, dtype, extents, body = found.groups()
        shape = tuple(int(n) for n in extents.split(",") if n)
        try:
            nodes.append(_parse_body(name, body, shape, dtype, names))
        except (KeyError, ValueError, SyntaxError) as error:
            raise VerifyError("Tensor", line, f"cannot be read ({error})") from error
        names[name] = len(nodes) - 1
        sources.append(here)
    return Program(tuple(nodes), _outputs(lines[-1] if lines else "", names), tuple(names), tuple(sources))


def _outputs(line: str, names: Mapping[str, int]) -> tuple[Output, ...]:
    if not line.startswith("return"):
        raise VerifyError("Tensor", line, "the last line is not `return`")
    outputs = []
    for part in line.removeprefix("return").split(","):
        name, _, alias = part.strip().partition(" -> ")
        if name and name not in names:
            raise VerifyError("Tensor", line, f"{name} is not defined")
        if name:
            outputs.append(Output(names[name], alias or None))
    return tuple(outputs)


def _parse_body(name: str, body: str, shape: Shape, dtype: str, names: Mapping[str, int]) -> Node:
    if body in ("input", "constant"):
        return Input(name, shape, dtype, body == "constant")
    if body == "iota":
        return Iota(shape, dtype)
    if body.startswith("const "):
        return Const(dtype, read_bits(dtype, body.removeprefix("const ")))
    fold = _FOLD.fullmatch(body)
    if fold is not None:
        kind, op, arg, where = fold.groups()
        dims = tuple(int(d) for d in where.split(","))
        return Reduce(op, names[arg], dims, shape, dtype) if kind == "reduce" else Scan(op, names[arg], dims[0], shape, dtype)
    call = _CALL.fullmatch(body)
    if call is not None:
        return Elementwise(call[1], tuple(names[a.strip()] for a in call[2].split(",")), shape, dtype)
    read = _READ.fullmatch(body)
    if read is None:
        raise ValueError("unknown operation")
    index = tuple(map(ix.parse, items(read[2])))
    if read[3] is None:
        return IndexMap(names[read[1]], index, shape, dtype)
    return Gather(names[read[1]], index, tuple(names[i.strip()] for i in read[3].split(",")), shape, dtype)
