"""Tensor IR: a tensor program in five node kinds.

    Elementwise(op, args)         args have the node's shape; op is a row of `emmy_eq.ops` or ``cast``
    Reduce(op, arg, dims)         op is a monoid, ``argmax`` or ``argmin``; dims are removed
    Scan(op, arg, dim)            inclusive scan with a monoid, or of the weights of a twist (`emmy_eq.ops`) under their running key
    IndexMap(arg, index)          out[i...] = arg[index(i...)]; view, permute, expand, slice, flip, im2col windows
    Gather(arg, index, indices)   the same with data-dependent coordinates
    + Input, Const (a scalar, shape ()), Iota (arange along one dim)

Nodes are in topological order; an argument is the index of an earlier node.  Index expressions (`Idx`) are over the
output's dims ``d0, d1, ...`` and always in bounds: padding is a ``where`` over a clamped read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from emmy_eq.index import Idx

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    shape: Shape
    dtype: str
    constant: bool = False  # a module's parameter or buffer, as opposed to an argument


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar; ``bits`` is the bit pattern in ``dtype``, so that 0.0 and -0.0 and every NaN stay apart."""

    dtype: str
    bits: int
    shape: Shape = ()


@dataclass(frozen=True, slots=True)
class Iota:
    """0, 1, ..., n-1 as ``dtype``, shape (n,)."""

    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Elementwise:
    """``op`` of arguments that all have this node's shape, except that a Const (shape ()) needs no expanding.

    ``cast`` converts the one argument to ``dtype`` (float to int truncates toward zero; float to u8, i8 and i16 goes
    through i32; to bool means ``!= 0``; to f16 and bf16 rounds to nearest even).
    """

    op: str
    args: tuple[int, ...]
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """``argmax`` and ``argmin`` give the i64 position within ``dims`` flattened: the first NaN if any, else the first best."""

    op: str
    arg: int
    dims: tuple[int, ...]
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Scan:
    op: str
    arg: int
    dim: int
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class IndexMap:
    """``index[k]`` gives coordinate k of ``arg`` from the output dims d0, d1, ..."""

    arg: int
    index: tuple[Idx, ...]
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Gather:
    """As IndexMap, where ``Idx`` may also name ``g0, g1, ...``: the value of ``indices[n]`` (an integer node of this
    node's shape) at the output position.  The caller has made coordinates non-negative; out of range is an error that
    the interpreter and the simulator report, as torch does."""

    arg: int
    index: tuple[Idx, ...]
    indices: tuple[int, ...]
    shape: Shape
    dtype: str


Node = Input | Const | Iota | Elementwise | Reduce | Scan | IndexMap | Gather


@dataclass(frozen=True, slots=True)
class Output:
    """One result of the program.  ``alias`` names the input whose memory it must share (in-place programs)."""

    node: int
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Program:
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    names: tuple[str, ...]  # one a node: the seam's name, after the torch op it came from ("matmul", "softmax_1", ...)
    sources: tuple[str, ...]  # one a node: where in the user's code, "file.py:12 in forward" or ""


def arguments(node: Node) -> tuple[int, ...]:
    """Indices of the nodes that ``node`` reads."""
    if isinstance(node, Elementwise):
        return node.args
    if isinstance(node, Gather):
        return (node.arg, *node.indices)
    if isinstance(node, Reduce | Scan | IndexMap):
        return (node.arg,)
    return ()


def renumber(node: Node, to: Mapping[int, int]) -> Node:
    """``node`` with its arguments' numbers replaced."""
    if isinstance(node, Elementwise):
        return replace(node, args=tuple(to[a] for a in node.args))
    if isinstance(node, Gather):
        return replace(node, arg=to[node.arg], indices=tuple(to[a] for a in node.indices))
    if isinstance(node, Reduce | Scan | IndexMap):
        return replace(node, arg=to[node.arg])
    return node


def total(shape: Sequence[int]) -> int:
    """Number of elements of ``shape``."""
    n = 1
    for extent in shape:
        n *= extent
    return n
