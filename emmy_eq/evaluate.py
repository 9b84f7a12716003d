"""Reference interpreter of terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emmy_eq import named
from emmy_eq import terms as tm
from emmy_eq.named import NamedArray, dtype_of
from emmy_eq.terms import AxisTable, InputBuf, Stored, TermProgram, Val

Array = np.ndarray[Any, Any]


def run(program: TermProgram, inputs: Mapping[str, Array], float64: bool = False) -> list[Array]:
    """The results, each of its tensor shape; inputs by name.  ``float64`` computes all floats in f64 (the oracle)."""
    values = evaluate([r.val for r in program.results], program.axes, inputs, float64)
    return [np.array(v.over({a.name: a.extent for a in r.axes})).reshape(r.shape) for v, r in zip(values, program.results, strict=True)]


def evaluate(
    roots: Sequence[Val], axes: AxisTable, inputs: Mapping[str, Array], float64: bool = False, temps: Mapping[str, NamedArray] | None = None
) -> list[NamedArray]:
    """The values of ``roots`` as functions of their free axes; ``temps`` hold what `TempBuf`s name, by name."""
    evaluator = _Evaluator(axes, inputs, float64, temps or {})
    for v in tm.topological(roots):
        evaluator.values[v] = evaluator.value(v)
    return [evaluator.values[v] for v in roots]


class _Evaluator:
    def __init__(self, axes: AxisTable, inputs: Mapping[str, Array], float64: bool, temps: Mapping[str, NamedArray]) -> None:
        self.axes = axes
        self.float64 = float64
        self.inputs = inputs
        self.temps = temps
        self.values: dict[Val, NamedArray] = {}

    def value(self, v: Val) -> NamedArray:
        args = [self.values[a] for a in v.args]
        match v.op:
            case "lit":
                return named.scalar(tm.from_bits(v.dtype, v.attr), v.dtype, self.float64)
            case "iota":
                return named.position(v.attr, self.axes.extents())
            case "load":
                return self.load(v, args)
            case "cast":
                return named.cast(args[0], v.dtype, self.float64)
            case "reduce":
                return named.reduce(v.attr[0], args[0], self.over(v.attr[1]), v.dtype)
            case "argreduce":
                return named.argreduce(v.attr[0], args[0], self.over(v.attr[1]))
            case "scan" if len(args) == 2:
                return named.running(v.attr[0], args[0], args[1], self.over(v.attr[1]))
            case "scan":
                return named.scan(v.attr[0], args[0], self.over(v.attr[1]))
            case "twist":
                return named.twist(v.attr[0], args[0], args[1], self.over(v.attr[1]), v.dtype)
        return named.apply(v.op, *args)

    def over(self, mask: int) -> dict[str, int]:
        return {a.name: a.extent for a in self.axes.of(mask)}

    def load(self, v: Val, indices: Sequence[NamedArray]) -> NamedArray:
        buf, idxs = v.attr
        if isinstance(buf, InputBuf):
            array = np.asarray(self.inputs[buf.name]).astype(dtype_of(buf.dtype, self.float64), copy=False).reshape(buf.shape)
            return named.gather(array, idxs, self.axes.extents(), indices)
        stored = self.values[buf.val] if isinstance(buf, Stored) else self.temps[buf.name]
        over = self.over(buf.mask)
        array = stored.over(over)
        return NamedArray(tuple(over), array) if tm.is_pointwise(v, self.axes) else named.gather(array, idxs, self.axes.extents(), indices)
