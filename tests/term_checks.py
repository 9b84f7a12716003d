"""Shared by the tests of axes and terms: programs by hand, and the comparison of terms with Tensor IR."""

from __future__ import annotations

import numpy as np

from emmy_eq import evaluate, tensor_ir
from emmy_eq import terms as tm
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.ops import DTYPES, FLOATS
from emmy_eq.terms import Axis, TermProgram
from emmy_eq.to_terms import to_terms

# Both sides compute in float64 and differ in the order of sums alone; no sum here has 10,000 terms.
TOLERANCE = 1e-11


def program(b: Builder, *outputs: Value) -> tensor_ir.Program:
    """What ``b`` built, with these results; named n0, n1, ... by node."""
    names = tuple(f"n{k}" for k in range(len(b.nodes)))
    return tensor_ir.Program(tuple(b.nodes), tuple(tensor_ir.Output(o.node) for o in outputs), names, ("",) * len(names))


def inputs_of(p: tensor_ir.Program, seed: int = 0) -> dict[str, np.ndarray]:
    """A value for every input: normal floats, integers in [0, 3), booleans."""
    rng = np.random.default_rng(seed)
    out = {}
    for node in p.nodes:
        if isinstance(node, tensor_ir.Input):
            value = rng.standard_normal(node.shape) if node.dtype in FLOATS else rng.integers(0, 3, node.shape)
            out[node.name] = value.astype(DTYPES[node.dtype])
    return out


def check(p: tensor_ir.Program, inputs: dict[str, np.ndarray] | None = None) -> TermProgram:
    """The terms of ``p``, once they verify, print, and agree with Tensor IR, and both sides of every equality agree too."""
    tensor_ir.verify(p)
    terms = to_terms(p)
    tm.verify(terms)
    assert tm.show(terms)
    inputs = inputs_of(p) if inputs is None else inputs
    found = evaluate.run(terms, inputs, float64=True)
    for got, want in zip(found, tensor_ir.run(p, inputs, float64=True), strict=True):
        np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)
    sides = evaluate.evaluate([v for pair in terms.equalities for v in pair], terms.axes, inputs, float64=True)
    for left, right in zip(sides[::2], sides[1::2], strict=True):
        np.testing.assert_array_equal(left.array, right.over(left.extents()))
    return terms


def seam(terms: TermProgram, value: Value) -> tuple[tm.Val, tuple[Axis, ...]]:
    """The body and the axes, in memory order, of a node of `program`."""
    load, axes = next((load, axes) for name, load, axes in terms.seams if name == f"n{value.node}")
    return load.attr[0].val, axes


def extents(axes: tuple[Axis, ...]) -> list[int]:
    return [a.extent for a in axes]
