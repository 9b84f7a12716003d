"""Reference interpreter of Tensor IR in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emmy_eq import named
from emmy_eq.errors import InvalidInput
from emmy_eq.named import NamedArray, dtype_of
from emmy_eq.ops import DTYPES, FLOATS, monoids
from emmy_eq.tensor_ir.grammar import Const, Elementwise, IndexMap, Input, Iota, Node, Program, Reduce, Scan, Shape, arguments
from emmy_eq.terms import from_bits

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[int, NamedArray]  # axes ``d0``, ``d1``, ...; a value that repeats along a dim lacks it


def run(program: Program, inputs: Mapping[str, Array], float64: bool = False) -> list[Array]:
    """The results, in order.  With ``float64`` every float is computed in float64 (the oracle), else in its stated dtype.

    A sum of products is contracted without its expanded intermediate.  Raises `InvalidInput` for an input of another
    shape or dtype, and for a gather out of bounds.
    """
    values: dict[int, NamedArray] = {}
    with np.errstate(all="ignore"):
        for n in _needed(program):
            values[n] = _evaluate(program, program.nodes[n], values, inputs, float64)
    return [np.array(values[o.node].over(_extents(program.nodes[o.node].shape))) for o in program.outputs]


def _extents(shape: Shape) -> dict[str, int]:
    return {f"d{d}": n for d, n in enumerate(shape)}


def _product(program: Program, node: Node) -> Elementwise | None:
    """The product that ``node`` sums, if it is a sum of a product."""
    if not isinstance(node, Reduce) or node.op != "sum":
        return None
    product = program.nodes[node.arg]
    return product if isinstance(product, Elementwise) and product.op == "mul" else None


def _needed(program: Program) -> list[int]:
    used = {o.node for o in program.outputs}
    for n in reversed(range(len(program.nodes))):
        if n in used:
            used.update(arguments(_product(program, program.nodes[n]) or program.nodes[n]))
    return sorted(used)


def _evaluate(program: Program, node: Node, values: Values, inputs: Mapping[str, Array], float64: bool) -> NamedArray:
    if isinstance(node, Input):
        return NamedArray(tuple(_extents(node.shape)), _input(node, inputs, float64))
    if isinstance(node, Const):
        return named.scalar(from_bits(node.dtype, node.bits), node.dtype, float64)
    if isinstance(node, Iota):
        return NamedArray(("d0",), np.arange(node.shape[0]).astype(dtype_of(node.dtype, float64)))
    if isinstance(node, Elementwise):
        args = [values[a] for a in node.args]
        return named.cast(args[0], node.dtype, float64) if node.op == "cast" else named.apply(node.op, *args)
    if isinstance(node, Reduce):
        return _reduce(program, node, values)
    x, extents = values[node.arg], _extents(node.shape)
    if isinstance(node, Scan):
        over = {f"d{node.dim}": node.shape[node.dim]}
        return named.scan(node.op, x, over) if node.op in monoids() else named.running(node.op, x, x.like(1.0), over)
    if 0 in node.shape:  # no position is ever read, and an index of none need not be in bounds
        return NamedArray(tuple(extents), np.zeros(node.shape, x.array.dtype))
    if isinstance(node, IndexMap):
        return _read(node, x, extents)
    whole = x.over(_extents(program.nodes[node.arg].shape))
    try:
        return named.gather(whole, node.index, extents, [values[i] for i in node.indices])
    except IndexError as error:
        raise InvalidInput("index", f"out of bounds: {error}") from None


def _input(node: Input, inputs: Mapping[str, Array], float64: bool) -> Array:
    if node.name not in inputs:
        raise InvalidInput(f"input {node.name}", "no value was given for it")
    x = np.asarray(inputs[node.name])
    if x.shape != node.shape or (x.dtype != DTYPES[node.dtype] and not (float64 and node.dtype in FLOATS)):
        raise InvalidInput(f"input {node.name}", f"it is {x.dtype}{list(x.shape)}, not {node.dtype}{list(node.shape)}")
    return x.astype(dtype_of(node.dtype, float64), copy=False)


def _reduce(program: Program, node: Reduce, values: Values) -> NamedArray:
    """Over ``node.dims``; what is left is numbered anew."""
    product = _product(program, node)
    shape = program.nodes[node.arg].shape
    over = {f"d{d}": shape[d] for d in node.dims}
    found = _contract(values[product.args[0]], values[product.args[1]], over) if product is not None else None
    if found is None:
        x = named.apply("mul", *(values[a] for a in product.args)) if product is not None else values[node.arg]
        found = named.argreduce(node.op, x, over) if node.op in ("argmax", "argmin") else named.reduce(node.op, x, over, node.dtype)
    kept = [d for d in range(len(shape)) if d not in node.dims]
    return NamedArray(tuple(f"d{kept.index(int(a[1:]))}" for a in found.axes), found.array)


def _contract(a: NamedArray, b: NamedArray, over: Mapping[str, int]) -> NamedArray | None:
    """Sum of a product of floats over axes that one of the two has at least."""
    axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
    if a.array.dtype.kind != "f" or not a.array.size or not b.array.size or not over.keys() <= set(axes):
        return None
    left, right, kept = ([axes.index(x) for x in some] for some in (a.axes, b.axes, [x for x in axes if x not in over]))
    return NamedArray(tuple(axes[n] for n in kept), np.asarray(np.einsum(a.array, left, b.array, right, kept, optimize=True)))


def _read(node: IndexMap, x: NamedArray, extents: Mapping[str, int]) -> NamedArray:
    """A view where each coordinate is an output dim of its own or a constant, else a copy."""
    index = [node.index[int(a[1:])] for a in x.axes]
    names = tuple(i.name for i in index if i.op == "var")
    if all(i.op in ("var", "const") for i in index) and len(set(names)) == len(names):
        return NamedArray(names, x.array[tuple(i.value if i.op == "const" else slice(0, extents[i.name]) for i in index)])
    return named.gather(x.array, index, extents)
