"""L2: exact arithmetic with an order: fractions, -inf for what is masked, ties, empty reductions.

Where `emmy_eq.verify.field` knows the order as a free lattice, here maximum and addition live together: max(a + c) = max(a) + c
holds where c is constant.  exp(x) is 2^x for whole x, so that exp(a + b) = exp(a) exp(b) and exp(-inf) = 0 hold exactly; log
is its inverse, sqrt takes exact roots, and a result that is no fraction makes the layer abstain.  Functions that no rule
knows anything of are keyed hashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from emmy_eq import ops
from emmy_eq.algebra import Val
from emmy_eq.rule import Rounding, Rule
from emmy_eq.verify import operands
from emmy_eq.verify.draws import Abstains, Draw, dtype_of
from emmy_eq.verify.operands import Array
from emmy_eq.verify.recorded import record, replay
from emmy_eq.verify.space import AxisSet, bits, key_of

Number = Fraction | float  # a float only where it is infinite or NaN
LARGEST = 64  # exponents beyond make numbers that are slow to add


@dataclass(frozen=True, slots=True, eq=False)
class Exact(Val):
    """An array with one dim an axis of the draw (1 where the value does not vary); floats are `Number`s in an object array."""

    array: Array
    dtype: str
    mask: int
    extents: tuple[int, ...]

    def _make(self, array: Array, dtype: str, mask: int) -> Self:
        return type(self)(array, dtype, mask, self.extents)

    def _op(self, name: str, *others: Self) -> Self:
        args = (self, *others)
        row = ops.ops()[name]
        dtype = args[-1].dtype if row.result == "same" else row.result
        mask = 0
        for a in args:
            mask |= a.mask
        if name == "where" or args[-1].dtype not in ops.FLOATS:
            with np.errstate(all="ignore"):
                return self._make(np.asarray(row.numpy(*(a.array for a in args))), dtype, mask)
        function = np.frompyfunc(_FUNCTIONS.get(ops.exact(name)) or _hashed(ops.exact(name)), row.arity, 1)
        with np.errstate(all="ignore"):
            array = np.asarray(function(*(a.array for a in args)), object)
        return self._make(array.astype(np.bool_) if dtype == "bool" else array, dtype, mask)

    def _reduce(self, monoid: Any, k: AxisSet) -> Self:
        out = self
        for axis in bits(k.mask):
            steps = out._steps(monoid, axis)
            out = self._make(steps[-1] if steps else out._identity(monoid, axis), self.dtype, out.mask & ~(1 << axis))
        return out

    def _scan(self, monoid: Any, k: AxisSet) -> Self:
        axis = k.only()
        steps = self._steps(monoid, axis)
        shape = [self.extents[a] if a == axis else n for a, n in enumerate(self.array.shape)]
        return self._make(np.concatenate(steps, axis=axis) if steps else np.broadcast_to(self.array, shape), self.dtype, self.mask | k.mask)

    def _steps(self, monoid: str, axis: int) -> list[Array]:
        """What a fold along ``axis`` holds after each position."""
        combine, steps = ops.monoids()[monoid].combine, list[Array]()
        for n in range(self.extents[axis]):
            here = self._make(np.take(self.array, [n if self.mask >> axis & 1 else 0], axis=axis), self.dtype, 0)
            steps.append((self._make(steps[-1], self.dtype, 0)._op(combine, here) if steps else here).array)
        return steps

    def _identity(self, monoid: str, axis: int) -> Array:
        shape = [1 if a == axis else n for a, n in enumerate(self.array.shape)]
        return np.full(shape, self.like(ops.monoids()[monoid].identity(self.dtype)).array.flat[0])

    def _running(self, name: str, v: Self, k: AxisSet) -> Self:
        row, axis = ops.twists()[name], k.only()
        totals = row.totals(zip(self._places(axis), v._places(axis), strict=True))
        if not totals:
            return self * v
        arrays = np.broadcast_arrays(*(t.array for t in totals))
        return self._make(np.concatenate(arrays, axis=axis), v.dtype, self.mask | v.mask | k.mask)

    def _places(self, axis: int) -> list[Self]:
        """The value at each position of ``axis``."""
        every = range(self.extents[axis])
        return [self._make(np.take(self.array, [n if self.mask >> axis & 1 else 0], axis=axis), self.dtype, self.mask) for n in every]

    def _twist(self, name: str, v: Self, k: AxisSet) -> Self:
        row = ops.twists()[name]
        out: Self = (row.weight(self, row.centre(self.reduce(row.key, k), self.count(k))) * v.cast(self.dtype)).sum(k)
        return out

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

    def count(self, k: AxisSet) -> Self:
        return self.like(math.prod(self.extents[a] for a in bits(k.mask)))

    def stored(self, m: AxisSet) -> Self:
        return self

    @property
    def free(self) -> AxisSet:
        return AxisSet(self.mask, self.extents)

    def has_dtype(self, dtype: Any) -> bool:
        return bool(self.dtype == dtype)


def refutes(rule: Rule, draw: Draw) -> str | None:
    """Raises `Abstains` where a side is no fraction."""
    recording = record(rule)
    values = operands.draw_operands(rule, draw, operands.whole)
    env: dict[str, Any] = {}
    for (name, kind), (_, arg) in zip(rule.args, draw.args, strict=True):
        if kind == "axes":
            env[name] = AxisSet(int(arg), draw.extents)
        else:
            env[name] = arg if isinstance(arg, str) else operand(values[name], dtype_of(kind, draw), int(arg), draw.extents)
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
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": _mul,
    "div": _div,
    "fma": lambda a, b, c: _mul(a, b) + c,
    "neg": lambda a: -a,
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
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}  # fmt: skip
_RELATED = frozenset({"exp2", "expm1", "log2", "log10", "log1p", "copysign", "mod", "fmod", "floordiv", "truncdiv"})


def _hashed(name: str) -> Callable[..., Number]:
    """A function that is nothing but a function; one that rules relate to others makes the layer abstain."""

    def function(*args: Number) -> Number:
        if name in _RELATED or not all(map(_finite, args)):
            raise Abstains(f"{name} has no exact reading")
        return Fraction(key_of(f"{name}{args}", 0) % 1021 - 510, 16)

    return function
