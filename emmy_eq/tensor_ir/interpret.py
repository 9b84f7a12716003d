"""Reference interpreter of Tensor IR in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, FLOATS, monoids, ops
from emmy_eq.tensor_ir.grammar import (
    Const,
    Elementwise,
    Gather,
    IndexMap,
    Input,
    Iota,
    Node,
    Program,
    Reduce,
    Scan,
    Shape,
    arguments,
    total,
)
from emmy_eq.terms import from_bits

Array = np.ndarray[Any, np.dtype[Any]]


def run(program: Program, inputs: Mapping[str, Array], float64: bool = False) -> list[Array]:
    """The results, in order.  With ``float64`` every float is computed in float64 (the oracle), else in its stated dtype.

    A sum of products is contracted without its expanded intermediate.  Raises `InvalidInput` for an input of another
    shape or dtype, and for a gather out of bounds.
    """
    values: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for n in _needed(program):
            values[n] = _evaluate(program, program.nodes[n], values, inputs, float64)
    return [np.array(values[o.node]) for o in program.outputs]


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


def dtype_of(dtype: str, float64: bool) -> np.dtype[Any]:
    """The NumPy dtype that holds ``dtype`` in this mode."""
    return DTYPES["f64"] if float64 and dtype in FLOATS else DTYPES[dtype]


def convert(x: Array, dtype: str, float64: bool = False) -> Array:
    """``cast`` of Tensor IR: float to int truncates (narrow ints by way of i32), to bool is ``!= 0``."""
    to = dtype_of(dtype, float64)
    if dtype == "bool":
        return np.asarray(x != 0)
    if dtype in ("u8", "i8", "i16") and x.dtype.kind not in "iub":
        x = x.astype(np.int32)
    return x.astype(to)


def _evaluate(program: Program, node: Node, values: Mapping[int, Array], inputs: Mapping[str, Array], float64: bool) -> Array:
    if isinstance(node, Input):
        return _input(node, inputs, float64)
    if isinstance(node, Const):
        return np.asarray(from_bits(node.dtype, node.bits)).astype(dtype_of(node.dtype, float64))
    if isinstance(node, Iota):
        return np.arange(node.shape[0]).astype(dtype_of(node.dtype, float64))
    product = _product(program, node)
    if product is not None and isinstance(node, Reduce):
        return _contract(values[product.args[0]], values[product.args[1]], node, product.shape)
    if isinstance(node, Elementwise):
        args = [values[a] for a in node.args]
        out = convert(args[0], node.dtype, float64) if node.op == "cast" else np.asarray(ops()[node.op].numpy(*args))
        return np.broadcast_to(out.astype(dtype_of(node.dtype, float64), copy=False), node.shape)
    x = values[node.arg]
    if isinstance(node, Reduce):
        return _reduce(node, x, dtype_of(node.dtype, float64))
    if isinstance(node, Scan):
        return _scan(node, x) if x.size else x
    if isinstance(node, IndexMap):
        return _read(x, node.index, node.shape)
    return _gather(node, x, [values[i] for i in node.indices])


def _input(node: Input, inputs: Mapping[str, Array], float64: bool) -> Array:
    if node.name not in inputs:
        raise InvalidInput(f"input {node.name}", "no value was given for it")
    x = np.asarray(inputs[node.name])
    if x.shape != node.shape or (x.dtype != DTYPES[node.dtype] and not (float64 and node.dtype in FLOATS)):
        raise InvalidInput(f"input {node.name}", f"it is {x.dtype}{list(x.shape)}, not {node.dtype}{list(node.shape)}")
    return x.astype(dtype_of(node.dtype, float64), copy=False)


def _contract(a: Array, b: Array, node: Reduce, shape: Shape) -> Array:
    """Sum of a product over ``node.dims``; dims along which an operand only repeats are left to the other operand."""
    a, b = (np.broadcast_to(x, shape) for x in (a, b))
    repeats = [[d for d in range(len(shape)) if x.strides[d] == 0 and shape[d] > 1] for x in (a, b)]
    kept = [d for d in range(len(shape)) if d not in node.dims]
    if any(d in repeats[0] and d in repeats[1] for d in range(len(shape))) or not total(shape) or a.dtype.kind != "f":
        return _reduce(node, a * b, a.dtype)
    labels = [[d for d in range(len(shape)) if d not in r] for r in repeats]
    operands = [x[tuple(0 if d in r else slice(None) for d in range(len(shape)))] for x, r in zip((a, b), repeats, strict=True)]
    return np.asarray(np.einsum(operands[0], labels[0], operands[1], labels[1], kept, optimize=True))


def _reduce(node: Reduce, x: Array, dtype: np.dtype[Any]) -> Array:
    if node.op in ("argmax", "argmin"):
        kept = [d for d in range(x.ndim) if d not in node.dims]
        flat = x.transpose(*kept, *node.dims).reshape(*node.shape, -1)
        return np.asarray((np.argmax if node.op == "argmax" else np.argmin)(flat, axis=-1)).astype(np.int64)
    monoid = monoids()[node.op]
    if monoid.serial:
        kept = [d for d in range(x.ndim) if d not in node.dims]
        return np.asarray(monoid.numpy(x.transpose(*kept, *node.dims).reshape(*node.shape, -1), axis=-1))
    for d in reversed(node.dims):
        if x.shape[d] == 0:
            shape = (*x.shape[:d], *x.shape[d + 1 :])
            x = np.full(shape, monoid.identity(node.dtype), dtype)
        else:
            x = np.asarray(monoid.numpy(x, axis=d))
    return x


def _scan(node: Scan, x: Array) -> Array:
    if node.op in monoids():
        return np.asarray(monoids()[node.op].accumulate(x, axis=node.dim))
    from emmy_eq import named  # which stands on this file

    over = {f"d{d}": n for d, n in enumerate(x.shape)}
    s = named.NamedArray(tuple(over), x)
    return named.running(node.op, s, s.like(1.0), {f"d{node.dim}": x.shape[node.dim]}).over(over)


def _read(x: Array, index: Sequence[Idx], shape: Shape) -> Array:
    """``x`` under ``index``: a view where each coordinate is an output dim of its own or a constant, else a copy."""
    if not total(shape):
        return np.zeros(shape, x.dtype)
    names = [i.name for i in index if i.op == "var"]
    if all(i.op in ("var", "const") for i in index) and len(set(names)) == len(names):
        viewed = x[tuple(i.value if i.op == "const" else slice(0, shape[int(i.name[1:])]) for i in index)]
        order = sorted(range(len(names)), key=lambda k: int(names[k][1:]))
        present = {int(name[1:]) for name in names}
        viewed = viewed.transpose(order)[tuple(slice(None) if d in present else None for d in range(len(shape)))]
        return np.broadcast_to(viewed, shape)
    return _fancy(x, index, shape, {})


def _fancy(x: Array, index: Sequence[Idx], shape: Shape, indices: Mapping[str, Array]) -> Array:
    grid = {f"d{k}": np.arange(n).reshape([-1 if j == k else 1 for j in range(len(shape))]) for k, n in enumerate(shape)}
    coordinates = [np.asarray(ix.evaluate(i, {**grid, **indices})) for i in index]
    for k, c in enumerate(coordinates):
        low, high = int(c.min()), int(c.max())
        if low < 0 or high >= x.shape[k]:
            raise InvalidInput("index", f"{low if low < 0 else high} is out of bounds for dim {k} with extent {x.shape[k]}")
    return np.broadcast_to(x[tuple(coordinates)], shape)


def _gather(node: Gather, x: Array, indices: Sequence[Array]) -> Array:
    if not total(node.shape):
        return np.zeros(node.shape, x.dtype)
    return _fancy(x, node.index, node.shape, {f"g{k}": v for k, v in enumerate(indices)})
