"""Verifier of Tensor IR: shapes, dtypes, order, and index expressions in bounds."""

from __future__ import annotations

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.index import Idx
from emmy_eq.ops import COMPUTE, DTYPES, monoids, ops, twists
from emmy_eq.tensor_ir.grammar import Const, Elementwise, Gather, IndexMap, Input, Iota, Node, Program, Reduce, Scan, arguments, total

_STORAGE = ("where", "cast")  # what may be applied to 16-bit floats and narrow integers


def verify(program: Program) -> None:
    """Raises `VerifyError` at the first node that breaks the grammar's rules."""
    names = program.names
    _require(len(names) == len(program.sources) == len(program.nodes), "program", "names, sources and nodes differ in number")
    _require(len(set(names)) == len(names), "program", "two nodes have one name")
    for n, node in enumerate(program.nodes):
        _require(all(0 <= a < n for a in arguments(node)), names[n], "an argument does not come before it")
        _require(node.dtype in DTYPES, names[n], f"{node.dtype} is no dtype")
        _node(program, names[n], node)
    inputs = {node.name for node in program.nodes if isinstance(node, Input)}
    for out in program.outputs:
        _require(0 <= out.node < len(program.nodes), "return", f"there is no node {out.node}")
        _require(out.alias is None or out.alias in inputs, "return", f"alias {out.alias} is no input")


def _require(holds: bool, where: str, why: str) -> None:
    if not holds:
        raise VerifyError("Tensor", where, why)


def _node(program: Program, name: str, node: Node) -> None:
    if isinstance(node, Elementwise):
        _elementwise(program, name, node)
    elif isinstance(node, Reduce | Scan):
        _fold(program, name, node)
    elif isinstance(node, IndexMap | Gather):
        _index(program, name, node)
    elif isinstance(node, Iota):
        _require(len(node.shape) == 1 and node.dtype == "i64", name, "an iota is i64 with one dim")
    elif isinstance(node, Const):
        _require(node.shape == () and 0 <= node.bits < 256 ** DTYPES[node.dtype].itemsize, name, "a const is one bit pattern of its dtype")


def _elementwise(program: Program, name: str, node: Elementwise) -> None:
    args = [program.nodes[a] for a in node.args]
    for arg in args:
        _require(arg.shape == node.shape or isinstance(arg, Const), name, f"argument of shape {arg.shape} in shape {node.shape}")
    if node.op == "cast":
        _require(len(args) == 1, name, "cast takes one argument")
        return
    row = ops().get(node.op)
    if row is None:
        raise VerifyError("Tensor", name, f"{node.op} is no row of the op table")
    _require(len(args) == row.arity, name, f"{node.op} takes {row.arity} arguments")
    same = args[1:] if node.op == "where" else args
    _require(all(a.dtype == same[0].dtype for a in same), name, f"arguments of dtypes {[a.dtype for a in same]}")
    _require(node.op != "where" or args[0].dtype == "bool", name, "the condition is not bool")
    _require(node.op in _STORAGE or same[0].dtype in COMPUTE, name, f"{node.op} computes in {same[0].dtype}")
    _require(node.dtype == row.gives(same[-1].dtype), name, f"{node.op} does not give {node.dtype}")


def _fold(program: Program, name: str, node: Reduce | Scan) -> None:
    arg = program.nodes[node.arg]
    if isinstance(node, Scan):
        known = node.op in monoids() or (node.op in twists() and twists()[node.op].scans)
        _require(known and 0 <= node.dim < len(arg.shape), name, f"no scan {node.op} along {node.dim}")
        _require(node.shape == arg.shape and node.dtype == arg.dtype, name, "a scan keeps shape and dtype")
        return
    positional = node.op in ("argmax", "argmin")
    _require(positional or node.op in monoids(), name, f"{node.op} is no monoid")
    _require(node.dims == tuple(sorted(set(node.dims))) and set(node.dims) <= set(range(len(arg.shape))), name, f"dims {node.dims}")
    kept = tuple(n for d, n in enumerate(arg.shape) if d not in node.dims)
    _require(node.shape == kept, name, f"shape {node.shape} where {kept} is left")
    _require(node.dtype == ("i64" if positional else arg.dtype), name, f"{node.op} does not give {node.dtype}")
    _require(arg.dtype in COMPUTE, name, f"{node.op} computes in {arg.dtype}")


def _index(program: Program, name: str, node: IndexMap | Gather) -> None:
    arg = program.nodes[node.arg]
    _require(len(node.index) == len(arg.shape) and node.dtype == arg.dtype, name, "index or dtype does not fit the argument")
    indices = [program.nodes[i] for i in node.indices] if isinstance(node, Gather) else []
    for k, i in enumerate(indices):
        _require(i.dtype == "i64" and (i.shape == node.shape or isinstance(i, Const)), name, f"g{k} is not i64 of the node's shape")
    extents = {f"d{k}": n for k, n in enumerate(node.shape)}
    data = {f"g{k}" for k in range(len(indices))}
    for k, coordinate in enumerate(node.index):
        named = ix.variables(coordinate)
        _require(named <= extents.keys() | data, name, f"coordinate {coordinate} names an unknown variable")
        if total(node.shape) and not named & data:
            _in_bounds(name, coordinate, extents, arg.shape[k])


def _in_bounds(name: str, i: Idx, extents: dict[str, int], extent: int) -> None:
    low, high = ix.bounds(i, extents)
    _require(0 <= low and high < extent, name, f"coordinate {i} spans {low}..{high} outside an extent of {extent}")
