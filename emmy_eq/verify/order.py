"""L2: exact arithmetic with an order: fractions, -inf for what is masked, ties, empty reductions.

Where `emmy_eq.verify.field` knows the order as a free lattice, here maximum and addition live together: max(a + c) = max(a) + c
holds where c is constant.  exp(x) is 2^x for whole x, so that exp(a + b) = exp(a) exp(b) and exp(-inf) = 0 hold exactly; log
is its inverse, sqrt takes exact roots, and a result that is no fraction makes the layer abstain.  Functions that no rule
knows anything of are keyed hashes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, Self

import numpy as np

from emmy_eq import ops
from emmy_eq.rule import Rounding, Rule
from emmy_eq.verify import operands
from emmy_eq.verify.draws import Abstains, Draw, arguments
from emmy_eq.verify.operands import Array
from emmy_eq.verify.reading import Stepwise
from emmy_eq.verify.recorded import record, replay
from emmy_eq.verify.space import AxisSet, key_of

Number = Fraction | float  # a float only where it is infinite or NaN
LARGEST = 64  # exponents beyond make numbers that are slow to add


@dataclass(frozen=True, slots=True, eq=False)
class Exact(Stepwise):
    """An array with one dim an axis of the draw (1 where the value does not vary); floats are `Number`s in an object array."""

    array: Array
    dtype: str
    mask: int
    extents: tuple[int, ...]

    def _make(self, array: Array, dtype: str, mask: int) -> Self:
        return type(self)(array, dtype, mask, self.extents)

    def _op(self, name: str, *others: Self) -> Self:
        args = (self, *others)
        row, dtype = ops.ops()[name], self.result_dtype(name, others)
        mask = reduce(int.__or__, (a.mask for a in args))
        if name == "where" or args[-1].dtype not in ops.FLOATS:
            with np.errstate(all="ignore"):
                return self._make(np.asarray(row.numpy(*(a.array for a in args))), dtype, mask)
        function = np.frompyfunc(_FUNCTIONS.get(ops.exact(name)) or _hashed(ops.exact(name)), row.arity, 1)
        with np.errstate(all="ignore"):
            array = np.asarray(function(*(a.array for a in args)), object)
        return self._make(array.astype(np.bool_) if dtype == "bool" else array, dtype, mask)

    def _places(self, axis: int) -> list[Self]:
        every = range(self.extents[axis])
        return [replace(self, array=np.take(self.array, [n if self.mask >> axis & 1 else 0], axis=axis)) for n in every]

    def _joined(self, steps: Sequence[Self], axis: int) -> Self:
        if steps:
            return replace(self, array=np.concatenate(np.broadcast_arrays(*(s.array for s in steps)), axis=axis))
        return replace(self, array=np.broadcast_to(self.array, [0 if a == axis else n for a, n in enumerate(self.array.shape)]))

    def _identity(self, monoid: str, axis: int) -> Self:
        shape = [1 if a == axis else n for a, n in enumerate(self.array.shape)]
        return replace(self, array=np.full(shape, self.like(ops.monoids()[monoid].identity(self.dtype)).array.flat[0]))

    def cast(self, dtype: Any) -> Self:
        was, to = self.dtype in ops.FLOATS, dtype in ops.FLOATS
        if was and to:
            return self._make(self.array, dtype, self.mask)
        if was:
            raise Abstains("a float became an integer")
        whole = np.frompyfunc(lambda n: Fraction(int(n)), 1, 1)
        return self._make(np.asarray(whole(self.array), object) if to else self.array.astype(ops.DTYPES[dtype]), dtype, self.mask)

    def like(self, value: float) -> Self:
        number = number_of(value) if self.dtype in ops.FLOATS else ops.DTYPES[self.dtype].type(value)
        return self._make(np.full([1] * len(self.extents), number), self.dtype, 0)

    @property
    def free(self) -> AxisSet:
        return AxisSet(self.mask, self.extents)


def refutes(rule: Rule, draw: Draw) -> str | None:
    """Raises `Abstains` where a side is no fraction."""
    recording = record(rule)
    values = operands.draw_operands(rule, draw, operands.whole)
    env = arguments(rule, draw, lambda name, dtype, mask: operand(values[name], dtype, mask, draw.extents))
    if not all(replay(guard, env) for guard in recording.when):
        return None
    lhs, rhs = replay(recording.lhs, env), replay(recording.rhs, env)
    return _differ(lhs, rhs, rule.rounding is Rounding.EXACT, rule.mends)


def operand(array: Array, dtype: str, mask: int, extents: tuple[int, ...]) -> Exact:
    shape = [n if mask >> a & 1 else 1 for a, n in enumerate(extents)]
    if dtype in ops.FLOATS:
        array = np.asarray(np.frompyfunc(lambda x: number_of(float(x)), 1, 1)(array), object)
    return Exact(array.reshape(shape), dtype, mask, extents)


def _differ(lhs: Exact, rhs: Exact, exact: bool, mends: bool) -> str | None:
    """Finite numbers and infinities agree; a NaN may stand for an infinity in the classes that round, and for anything in what mends.

    An infinity is one here also for what mends: exact sums do not underflow.
    """
    left, right = np.broadcast_arrays(lhs.array, rhs.array)
    for at in np.ndindex(*left.shape):
        a, b = left[at], right[at]
        nan, also = a != a, b != b
        loose = not exact and (nan or also) and not (_finite(a) or _finite(b))
        if not (loose or (mends and nan) or (nan and also) or a == b):
            return f"left {a}, right {b} at {at}"
    return None


def number_of(value: float) -> Number:
    return Fraction(value) if math.isfinite(value) else float(value)


def _finite(x: Any) -> bool:
    return not isinstance(x, float) or math.isfinite(x)


def _mul(a: Number, b: Number) -> Number:
    return a * b if _finite(a) and _finite(b) else float(a) * float(b)


def _div(a: Number, b: Number) -> Number:
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a)
    if not _finite(b):
        return math.nan if not _finite(a) or b != b else Fraction(0)
    return a / b if _finite(a) else float(a) * math.copysign(1.0, b)


def _best(a: Number, b: Number, first: bool) -> Number:
    if a != a or b != b:
        return math.nan
    return a if first else b


def _exp(a: Number) -> Number:
    if isinstance(a, float):
        return Fraction(0) if a == -math.inf else a
    if a.denominator != 1 or abs(a) > LARGEST:
        raise Abstains(f"exp({a}) is no fraction")
    return Fraction(2) ** int(a)


def _log(a: Number) -> Number:
    if isinstance(a, float) or a <= 0:
        return -math.inf if a == 0 else math.nan if a < 0 else float(a)
    top, bottom = a.numerator, a.denominator
    if top & (top - 1) or bottom & (bottom - 1):
        raise Abstains(f"log({a}) is no fraction")
    return Fraction(top.bit_length() - bottom.bit_length())


def _sqrt(a: Number) -> Number:
    if isinstance(a, float) or a < 0:
        return math.nan if a < 0 else float(a)
    top, bottom = math.isqrt(a.numerator), math.isqrt(a.denominator)
    if top * top != a.numerator or bottom * bottom != a.denominator:
        raise Abstains(f"sqrt({a}) is no fraction")
    return Fraction(top, bottom)


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float) or b.denominator != 1 or abs(b) > LARGEST or (a == 0 and b < 0):
        raise Abstains(f"pow({a}, {b}) is no fraction")
    return a ** int(b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "neg", "eq", "ne", "lt", "le", "gt", "ge")},
    "mul": _mul,
    "div": _div,
    "fma": lambda a, b, c: _mul(a, b) + c,
    "abs": abs,
    "reciprocal": lambda a: _div(Fraction(1), a),
    "maximum": lambda a, b: _best(a, b, a >= b),
    "minimum": lambda a, b: _best(a, b, a <= b),
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "rsqrt": lambda a: _div(Fraction(1), _sqrt(a)),
    "sigmoid": lambda a: _div(Fraction(1), 1 + _exp(-a)),
    "tanh": lambda a: 2 * _div(Fraction(1), 1 + _exp(-2 * a)) - 1,
    "pow": _power,
    "floor": lambda a: Fraction(math.floor(a)) if _finite(a) else a,
    "ceil": lambda a: Fraction(math.ceil(a)) if _finite(a) else a,
    "round": lambda a: Fraction(round(a)) if _finite(a) else a,
    "trunc": lambda a: Fraction(math.trunc(a)) if _finite(a) else a,
    "sign": lambda a: Fraction((a > 0) - (a < 0)),
    "isnan": lambda a: a != a,
    "isinf": lambda a: not _finite(a) and a == a,
}  # fmt: skip
_RELATED = frozenset({"exp2", "expm1", "log2", "log10", "log1p", "copysign", "mod", "fmod", "floordiv", "truncdiv"})


def _hashed(name: str) -> Callable[..., Number]:
    """A function that is nothing but a function; one that rules relate to others makes the layer abstain."""

    def function(*args: Number) -> Number:
        if name in _RELATED or not all(map(_finite, args)):
            raise Abstains(f"{name} has no exact reading")
        return Fraction(key_of(f"{name}{args}", 0) % 1021 - 510, 16)

    return function
