"""The scalar operations and the monoids: one table row each, and the semantics stand nowhere else.

A row says: name, arity, how the result's dtype follows from the arguments', the NumPy reference, the
CUDA text per dtype, and the cost.  Every IR below the Torch IR names its scalar operations by these rows.
Floating-point arithmetic is done in f32 or f64; 16-bit floats (and integers narrower than 32 bits) are
storage types: the front end casts around every operation, so only ``where``, casts, loads and stores see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from emmy_eq.errors import Unsupported

DTYPES: Mapping[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "i64": np.dtype(np.int64), "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "bool": np.dtype(np.bool_),
}  # fmt: skip
FLOATS = frozenset({"f32", "f64", "f16", "bf16"})
HALVES = frozenset({"f16", "bf16"})
INTS = frozenset({"i64", "i32", "i16", "i8", "u8"})
_FLOAT_KINDS = "fV"  # NumPy calls bfloat16 a void
COMPUTE = frozenset({"f32", "f64", "i64", "i32", "bool"})  # dtypes that arithmetic is done in

Unit = Literal["alu", "fma", "sfu"]


def itemsize(dtype: str) -> int:
    """Bytes of one element of ``dtype``."""
    return DTYPES[dtype].itemsize


@dataclass(frozen=True, slots=True)
class Fast:
    """An approximation: CUDA text and cost as in `Op`, and its error against the exact value y, at most ``relative * |y| + absolute``.

    Infinities and NaN are those of the exact function.  Sources: CUDA C++ Programming Guide, "Intrinsic Functions"; PTX ISA.
    """

    cuda: str
    cost: float
    relative: float
    absolute: float = 0.0

    @property
    def bound(self) -> str:
        parts = [f"{self.relative:.2g} of the value"] * (self.relative > 0) + [f"{self.absolute:.2g}"] * (self.absolute > 0)
        return f"off by at most {' and '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Op:
    """One scalar operation.

    ``result`` is ``"same"`` (the dtype of the last argument) or a dtype.  ``cuda`` maps a dtype of the last argument
    (``"*"``: any) to an expression over ``{0}``, ``{1}``, ...; the arguments are always plain names, so a template may
    repeat them.  ``unit`` and ``cost`` (issue slots of that unit for one element) feed the roofline.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    cuda: Mapping[str, str]
    result: str = "same"
    unit: Unit = "alu"
    cost: float = 1.0
    commutative: bool = False
    symbol: str | None = None  # infix spelling, where printers have one
    flops: int = 1
    fast: Fast | None = None  # of f32

    def gives(self, dtype: str) -> str:
        """The dtype of the result where that of the last argument is ``dtype``."""
        return dtype if self.result == "same" else self.result


def _f(f32: str, f64: str | None = None) -> dict[str, str]:
    """A math function of libdevice: ``expf`` for f32, ``exp`` for f64."""
    return {"f32": f32, "f64": f64 if f64 is not None else f32.replace("f(", "(", 1)}


def _numpy_pow(a: Any, b: Any) -> Any:
    """Power; integers wrap, and a negative integer exponent gives 0 unless the base is 1 or -1 (as torch does)."""
    if np.asarray(a).dtype.kind in _FLOAT_KINDS:
        return np.power(a, b)
    a, b = np.asarray(a), np.asarray(b)
    magnitude = np.power(a, np.maximum(b, 0))
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, unit, magnitude).astype(a.dtype)


def _numpy_maximum(a: Any, b: Any) -> Any:
    """NumPy leaves the order of signed zeros open; here 0.0 is above -0.0."""
    out = np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, out) if np.asarray(out).dtype.kind in _FLOAT_KINDS else out


def _numpy_minimum(a: Any, b: Any) -> Any:
    out = np.minimum(a, b)
    return np.where((a == 0) & (b == 0), -(-a - b), out) if np.asarray(out).dtype.kind in _FLOAT_KINDS else out


def _numpy_sign(x: Any) -> Any:
    """0 for NaN and for both zeros, as torch's sign."""
    return ((x > 0).astype(np.int8) - (x < 0).astype(np.int8)).astype(np.asarray(x).dtype)


def _numpy_floordiv(a: Any, b: Any) -> Any:
    """Division rounded down; an integer divisor 0 gives 0 (a GPU does not trap), INT_MIN // -1 wraps."""
    with np.errstate(all="ignore"):
        return np.floor_divide(a, b)


def _numpy_mod(a: Any, b: Any) -> Any:
    """Remainder of the sign of the divisor; a float zero keeps the dividend's sign, an integer divisor 0 gives 0."""
    rest = (
        np.fmod(a, b)
        if np.asarray(a).dtype.kind in _FLOAT_KINDS
        else np.where(b == 0, np.zeros_like(a), np.fmod(a, np.where(b == 0, 1, b)))
    )
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).astype(np.asarray(a).dtype)


def _numpy_truncdiv(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        if np.asarray(a).dtype.kind in _FLOAT_KINDS:
            return np.trunc(np.divide(a, b))
        quotient = np.floor_divide(a, b)
        return quotient + ((np.fmod(a, np.where(b == 0, 1, b)) != 0) & ((a < 0) != (b < 0))).astype(np.asarray(a).dtype)


def _numpy_erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _numpy_sigmoid(x: Any) -> Any:
    return np.reciprocal(np.add(np.ones_like(x), np.exp(np.negative(x))))


def _numpy_not(x: Any) -> Any:
    return np.logical_not(x) if np.asarray(x).dtype == np.bool_ else np.invert(x)


def _through(dtype: str) -> Callable[[Any], Any]:
    """Rounding to what ``dtype`` holds."""

    def rounded(x: Any) -> Any:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(DTYPES[dtype]).astype(np.asarray(x).dtype)

    return rounded


def _in_width(a: Any, b: Any) -> Any:
    return (b >= 0) & (b < 8 * np.asarray(a).dtype.itemsize)


def _numpy_shl(a: Any, b: Any) -> Any:
    return np.where(_in_width(a, b), np.left_shift(a, np.where(_in_width(a, b), b, 0)), 0).astype(np.asarray(a).dtype)


def _numpy_shr(a: Any, b: Any) -> Any:
    return np.right_shift(a, np.where(_in_width(a, b), b, 8 * np.asarray(a).dtype.itemsize - 1)).astype(np.asarray(a).dtype)


_INT_FLOORDIV = "({1} == 0 ? 0 : {1} == -1 ? ({T})(0 - ({U}){0}) : {0} / {1} - (({0} % {1} != 0) & (({0} < 0) != ({1} < 0))))"
_INT_MOD = "(({1} == 0) | ({1} == -1) ? 0 : {0} % {1} + ((({0} % {1} != 0) & (({0} < 0) != ({1} < 0))) ? {1} : 0))"
_INT_TRUNC = "({1} == 0 ? 0 : {1} == -1 ? ({T})(0 - ({U}){0}) : {0} / {1})"
_INT_FMOD = "(({1} == 0) | ({1} == -1) ? 0 : {0} % {1})"


def _ints(text: str) -> dict[str, str]:
    i32 = text.replace("{T}", "int").replace("{U}", "unsigned")
    return {"i32": i32, "i64": text.replace("{T}", "long long").replace("{U}", "unsigned long long")}


def _wrap(sign: str) -> dict[str, str]:
    """Integer arithmetic that wraps: done unsigned, since signed overflow is undefined in C++."""
    return {
        "*": f"({{0}} {sign} {{1}})",
        "i32": f"(int)((unsigned){{0}} {sign} (unsigned){{1}})",
        "i64": f"(long long)((unsigned long long){{0}} {sign} (unsigned long long){{1}})",
    }


_ULP = 2.0**-23  # of f32 at 1: a unit in the last place is at most so much of the value
_ROWS = (
    # arithmetic
    Op("add", 2, np.add, _wrap("+") | {"bool": "({0} | {1})"}, unit="fma", commutative=True, symbol="+"),
    Op("sub", 2, np.subtract, _wrap("-"), unit="fma", symbol="-"),
    Op("mul", 2, np.multiply, _wrap("*") | {"bool": "({0} & {1})"}, unit="fma", commutative=True, symbol="*"),
    Op("div", 2, np.divide, {"*": "({0} / {1})"}, unit="sfu", cost=4, symbol="/",
       fast=Fast("emmy_fast_div({0}, {1})", 2, 2 * _ULP, 2.0**-149)),
    Op("fma", 3, lambda a, b, c: a * b + c, {"f32": "fmaf({0}, {1}, {2})", "f64": "fma({0}, {1}, {2})"}, unit="fma", flops=2),
    Op("floordiv", 2, _numpy_floordiv, _ints(_INT_FLOORDIV) | {"f32": "emmy_floordivf({0}, {1})", "f64": "emmy_floordiv({0}, {1})"}, cost=16, symbol="//"),
    Op("mod", 2, _numpy_mod,
       _ints(_INT_MOD) | {"f32": "emmy_modf({0}, {1})", "f64": "emmy_mod({0}, {1})"}, cost=16, symbol="%"),
    Op("truncdiv", 2, _numpy_truncdiv, _ints(_INT_TRUNC) | {"f32": "truncf({0} / {1})", "f64": "trunc({0} / {1})"}, cost=16),
    Op("fmod", 2, lambda a, b: np.where(b == 0, np.zeros_like(a), np.fmod(a, b)) if np.asarray(a).dtype.kind in "iu" else np.fmod(a, b),
       _ints(_INT_FMOD) | _f("fmodf({0}, {1})"), cost=16),
    Op("pow", 2, _numpy_pow, _f("powf({0}, {1})") | {"i32": "emmy_powi({0}, {1})", "i64": "emmy_powi({0}, {1})"}, unit="sfu", cost=16),
    Op("neg", 1, np.negative, {"*": "(-{0})", "i32": "(int)(0u - (unsigned){0})", "i64": "(long long)(0ull - (unsigned long long){0})"}),
    Op("abs", 1, np.abs, {"f32": "fabsf({0})", "f64": "fabs({0})", "*": "({0} < 0 ? -{0} : {0})"}),
    Op("reciprocal", 1, np.reciprocal, {"f32": "(1.0f / {0})", "f64": "(1.0 / {0})"}, unit="sfu", cost=2.2,
       fast=Fast("emmy_fast_rcp({0})", 1, _ULP, 2.0**-149)),
    # lattice: both propagate NaN, and -0.0 < 0.0, as torch does
    Op("maximum", 2, _numpy_maximum, {"f32": "emmy_maxf({0}, {1})", "f64": "emmy_max({0}, {1})", "*": "({0} > {1} ? {0} : {1})"}, commutative=True),
    Op("minimum", 2, _numpy_minimum, {"f32": "emmy_minf({0}, {1})", "f64": "emmy_min({0}, {1})", "*": "({0} < {1} ? {0} : {1})"}, commutative=True),
    # transcendental
    Op("exp", 1, np.exp, _f("expf({0})"), unit="sfu", cost=1.15, fast=Fast("__expf({0})", 1, 105 * _ULP, 2.0**-126)),
    Op("exp2", 1, np.exp2, _f("exp2f({0})"), unit="sfu", cost=1),
    Op("expm1", 1, np.expm1, _f("expm1f({0})"), unit="sfu", cost=8),
    Op("log", 1, np.log, _f("logf({0})"), unit="sfu", cost=4.6, fast=Fast("__logf({0})", 1, 3 * _ULP, 2.0**-21.41)),
    Op("log2", 1, np.log2, _f("log2f({0})"), unit="sfu", cost=4, fast=Fast("__log2f({0})", 1, 2 * _ULP, 2.0**-22)),
    Op("log10", 1, np.log10, _f("log10f({0})"), unit="sfu", cost=4, fast=Fast("__log10f({0})", 1, 3 * _ULP, 2.0**-24)),
    Op("log1p", 1, np.log1p, _f("log1pf({0})"), unit="sfu", cost=8),
    Op("sqrt", 1, np.sqrt, _f("sqrtf({0})"), unit="sfu", cost=4, fast=Fast("emmy_fast_sqrt({0})", 1, 2 * _ULP)),
    Op("rsqrt", 1, lambda x: np.reciprocal(np.sqrt(x)), _f("rsqrtf({0})"), unit="sfu", cost=1.05),
    Op("sin", 1, np.sin, _f("sinf({0})"), unit="sfu", cost=12),
    Op("cos", 1, np.cos, _f("cosf({0})"), unit="sfu", cost=12),
    Op("tan", 1, np.tan, _f("tanf({0})"), unit="sfu", cost=16),
    Op("asin", 1, np.arcsin, _f("asinf({0})"), unit="sfu", cost=16),
    Op("acos", 1, np.arccos, _f("acosf({0})"), unit="sfu", cost=16),
    Op("atan", 1, np.arctan, _f("atanf({0})"), unit="sfu", cost=16),
    Op("atan2", 2, np.arctan2, _f("atan2f({0}, {1})"), unit="sfu", cost=20),
    Op("sinh", 1, np.sinh, _f("sinhf({0})"), unit="sfu", cost=12),
    Op("cosh", 1, np.cosh, _f("coshf({0})"), unit="sfu", cost=12),
    Op("tanh", 1, np.tanh, _f("tanhf({0})"), unit="sfu", cost=2.6, fast=Fast("emmy_fast_tanh({0})", 1, 2.0**-11)),
    Op("erf", 1, _numpy_erf, _f("erff({0})"), unit="sfu", cost=3.8),
    Op("sigmoid", 1, _numpy_sigmoid, {"f32": "emmy_fast_rcp(1.0f + expf(-{0}))", "f64": "(1.0 / (1.0 + exp(-{0})))"}, unit="sfu", cost=6, flops=4,
       fast=Fast("emmy_fast_rcp(1.0f + __expf(-{0}))", 2, 110 * _ULP, 2.0**-126)),
    # rounding and sign
    Op("floor", 1, np.floor, _f("floorf({0})")),
    Op("ceil", 1, np.ceil, _f("ceilf({0})")),
    Op("round", 1, np.rint, _f("rintf({0})")),  # half to even
    Op("trunc", 1, np.trunc, _f("truncf({0})")),
    Op("round_f16", 1, _through("f16"), _f("emmy_f16_to_f32(emmy_f32_to_f16({0}))", "(double)emmy_f16_to_f32(emmy_f32_to_f16((float){0}))"), flops=0),
    Op("round_bf16", 1, _through("bf16"), _f("emmy_bf16_to_f32(emmy_f32_to_bf16({0}))", "(double)emmy_bf16_to_f32(emmy_f32_to_bf16((float){0}))"), flops=0),
    Op("sign", 1, _numpy_sign, {"f32": "(float)(({0} > 0.0f) - ({0} < 0.0f))", "*": "(({0} > 0) - ({0} < 0))"}),
    Op("copysign", 2, np.copysign, _f("copysignf({0}, {1})")),
    # predicates
    Op("isnan", 1, np.isnan, {"*": "({0} != {0})"}, result="bool"),
    Op("isinf", 1, np.isinf, {"f32": "(fabsf({0}) == __int_as_float(0x7f800000))", "f64": "(fabs({0}) == __longlong_as_double(0x7ff0000000000000ll))"}, result="bool"),
    Op("eq", 2, np.equal, {"*": "({0} == {1})"}, result="bool", commutative=True, symbol="=="),
    Op("ne", 2, np.not_equal, {"*": "({0} != {1})"}, result="bool", commutative=True, symbol="!="),
    Op("lt", 2, np.less, {"*": "({0} < {1})"}, result="bool", symbol="<"),
    Op("le", 2, np.less_equal, {"*": "({0} <= {1})"}, result="bool", symbol="<="),
    Op("gt", 2, np.greater, {"*": "({0} > {1})"}, result="bool", symbol=">"),
    Op("ge", 2, np.greater_equal, {"*": "({0} >= {1})"}, result="bool", symbol=">="),
    # bits and booleans
    Op("and", 2, np.bitwise_and, {"*": "({0} & {1})"}, commutative=True, symbol="&"),
    Op("or", 2, np.bitwise_or, {"*": "({0} | {1})"}, commutative=True, symbol="|"),
    Op("xor", 2, np.bitwise_xor, {"*": "({0} ^ {1})"}, commutative=True, symbol="^"),
    Op("not", 1, _numpy_not, {"bool": "(!{0})", "*": "(~{0})"}, symbol="~"),
    # torch: an amount below 0 or past the width shifts every bit out (C++ leaves it open)
    Op("shl", 2, _numpy_shl, {"i32": "((unsigned){1} < 32u ? (int)((unsigned){0} << {1}) : 0)",
       "i64": "((unsigned long long){1} < 64ull ? (long long)((unsigned long long){0} << {1}) : 0)"}, symbol="<<"),
    Op("shr", 2, _numpy_shr, {"i32": "({0} >> ((unsigned){1} < 32u ? {1} : 31))", "i64": "({0} >> ((unsigned long long){1} < 64ull ? {1} : 63))"}, symbol=">>"),
    Op("where", 3, np.where, {"*": "({0} ? {1} : {2})"}),  # dtype of the last argument; any storage type
)  # fmt: skip


@cache
def ops() -> dict[str, Op]:
    """The scalar operations by name; the approximation of ``exp`` is ``fast_exp``, whose reference is exact."""
    fast = (
        replace(row, name=f"fast_{row.name}", cuda={"f32": row.fast.cuda}, cost=row.fast.cost, symbol=None, fast=None)
        for row in _ROWS
        if row.fast
    )
    return {row.name: row for row in (*_ROWS, *fast)}


def exact(name: str) -> str:
    """The operation that ``name`` approximates, or itself."""
    return name.removeprefix("fast_")


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative, commutative reduction: ``combine`` names an `Op`; ``identity`` gives its unit for a dtype.

    ``numpy(array, axis)`` reduces one axis; it is never called on an empty axis (the identity is used instead).
    ``serial``: it rounds, and is taken in order: the elements of all its axes in row-major order, one after the other from the first.
    """

    name: str
    combine: str
    identity: Callable[[str], float | int | bool]
    numpy: Callable[..., Any]
    accumulate: Callable[..., Any]  # inclusive scan along an axis
    serial: bool = False


def _lowest(dtype: str) -> float | int | bool:
    if dtype == "bool":
        return False
    return -np.inf if dtype in FLOATS else int(np.iinfo(DTYPES[dtype]).min)


def _highest(dtype: str) -> float | int | bool:
    if dtype == "bool":
        return True
    return np.inf if dtype in FLOATS else int(np.iinfo(DTYPES[dtype]).max)


def _best(extremum: Callable[..., Any], has: Callable[..., Any], highest: bool) -> Callable[..., Any]:
    """A maximum or minimum along an axis that orders signed zeros, which NumPy's leave open; ``has`` is the like of `numpy.any`."""

    def along(x: Any, axis: int) -> Any:
        out = extremum(x, axis=axis)
        if x.dtype.kind not in _FLOAT_KINDS or not np.any(out == 0):
            return out
        found = has((x == 0) & (np.signbit(x) != highest), axis=axis)
        return np.where(out == 0, np.where(found == highest, np.zeros_like(out), -np.zeros_like(out)), out)

    return along


def _last(op: np.ufunc) -> Callable[..., Any]:
    """A reduction in order: NumPy's own adds in blocks."""
    return lambda x, axis: op.accumulate(x, axis=axis).take(-1, axis)


@cache
def monoids() -> dict[str, Monoid]:
    """The reductions by name."""
    rows = (
        Monoid("sum", "add", lambda d: 0, lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype), lambda x, axis: np.cumsum(x, axis=axis, dtype=x.dtype)),
        Monoid("prod", "mul", lambda d: 1, lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype), lambda x, axis: np.cumprod(x, axis=axis, dtype=x.dtype)),
        Monoid("max", "maximum", _lowest, _best(np.max, np.any, True), _best(np.maximum.accumulate, np.logical_or.accumulate, True)),
        Monoid("min", "minimum", _highest, _best(np.min, np.any, False), _best(np.minimum.accumulate, np.logical_or.accumulate, False)),
        Monoid("serial_sum", "add", lambda d: -0.0, _last(np.add), np.add.accumulate, serial=True),  # -0.0 + x is x, -0.0 included
        Monoid("serial_prod", "mul", lambda d: 1, _last(np.multiply), np.multiply.accumulate, serial=True),
        Monoid("any", "or", lambda d: False, np.any, np.logical_or.accumulate),
        Monoid("all", "and", lambda d: True, np.all, np.logical_and.accumulate),
    )  # fmt: skip
    return {row.name: row for row in rows}


@dataclass(frozen=True, slots=True)
class Best:
    """A fold that keeps an element (value, position): the first NaN wins, else the best value, of equal ones that of the least position.

    ``key`` names the `Monoid` of the values; ``better`` is how one is better than another.
    """

    name: str
    key: str
    better: str

    def takes(self, x: Any, i: Any, y: Any, j: Any, floats: bool = True) -> Any:
        """Whether (x, i) is kept beside (y, j), in the algebra of `emmy_eq.algebra`; only ``floats`` have NaN."""
        better, equal = x.call(self.better, y), x.eq(y)
        if floats:
            nan, other = x.call("isnan"), y.call("isnan")
            better = better.call("or", nan.call("and", other.call("not")))
            equal = equal.call("or", nan.call("and", other))
        return better.call("or", equal.call("and", i.lt(j)))


@cache
def bests() -> dict[str, Best]:
    """The folds that give a position, by name."""
    return {row.name: row for row in (Best("argmax", "max", "gt"), Best("argmin", "min", "lt"))}


@dataclass(frozen=True, slots=True)
class Twist:
    """A one-pass fold whose sums follow its key: sum_j weight(s_j, M) * v_j with M = centre(key_j(s_j), count of j).

    ``key`` names a `Monoid`; the functions are written in the algebra of `emmy_eq.algebra`, so one spelling serves e-graph,
    interpreter and code generator.  Law of a row that rescales: weight(s, N) = weight(s, M) * rescale(M, N) for N = combine(M, .),
    and weight is 0 where s is ``nothing``: an empty or fully masked prefix adds nothing.  Law of a row that adjusts, for v = 1:
    sum_j weight(s_j, N) = adjust(sum_j weight(s_j, M), M, N, count of j).  With ``magnitudes`` s is never negative.
    An ``affine`` row only scans, since the order of its elements counts: an element (s, v) maps a total h to s*h + v.
    Sources: online softmax, Milakov and Gimelshein 2018 (arXiv:1805.02867); variances, Chan, Golub and LeVeque 1983; recurrences,
    Blelloch 1990 (CMU-CS-90-190).
    """

    name: str
    key: str
    weight: Callable[[Any, Any], Any]
    rescale: Callable[[Any, Any], Any]
    centre: Callable[[Any, Any], Any] = lambda key, count: key
    adjust: Callable[[Any, Any, Any, Any], Any] | None = None
    magnitudes: bool = False
    affine: bool = False

    @property
    def scans(self) -> bool:
        """Whether it has running totals: a prefix has no count of its own to adjust by."""
        return self.adjust is None

    @property
    def folds(self) -> bool:
        return not self.affine

    @property
    def exponential(self) -> bool:
        """Whether weight(s, M) is exp(s - M), and rescale(M, N) exp(M - N)."""
        return exact(self.name) == "softmax"

    def weighed(self, s: Any, key: Any) -> Any:
        """``weight``, and 0 for what does not count, whatever the function gives there (exp(-inf - -inf) is NaN)."""
        return self._counted(s, self.weight(s, key))

    def rescaled(self, old: Any, new: Any) -> Any:
        """``rescale``, and 0 where nothing was seen so far."""
        return self._counted(old, self.rescale(old, new))

    def _counted(self, key: Any, factor: Any) -> Any:
        return key.eq(key.like(self.nothing("f32"))).where(key.like(0.0), factor)

    def joined(self, key: Any, s: Any) -> Any:
        return key.call(monoids()[self.key].combine, s)

    def started(self, s: Any, v: Any) -> Any:
        """The total of one element."""
        return v if self.affine else self.weighed(s, s) * v

    def totals(self, places: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The running totals over elements (s, v)."""
        out: list[Any] = []
        key: Any = None
        for s, v in places:
            out.append(self.extended(key, out[-1], s, v) if out else self.started(s, v))
            key = s if key is None else self.joined(key, s)
        return out

    def extended(self, key: Any, total: Any, s: Any, v: Any) -> Any:
        """The total of those of ``key`` and ``total``, and one element more."""
        if self.affine:
            return total * s + v
        new = self.joined(key, s)
        return total * self.rescaled(key, new) + self.weighed(s, new) * v

    def nothing(self, dtype: str) -> float | int | bool:
        """The key of no elements, and the s of an element that does not count."""
        return 0.0 if self.magnitudes else monoids()[self.key].identity(dtype)


def _not_rescaled(m: Any, n: Any) -> Any:
    raise Unsupported("variance", "its fold is adjusted by a count, not rescaled")


def _not_weighed(s: Any, m: Any) -> Any:
    raise Unsupported("recurrence", "its totals have no weights")


@cache
def twists() -> dict[str, Twist]:
    """The twisted folds by name."""
    rows = (
        Twist("softmax", "max", lambda s, m: (s - m).exp(), lambda m, n: (m - n).exp()),
        Twist("fast_softmax", "max", lambda s, m: (s - m).call("fast_exp"), lambda m, n: (m - n).call("fast_exp")),
        # a row of zeros, whose quotients 0/0 are NaN, has norm 0
        Twist("norm", "max", lambda s, m: (s / m) * (s / m), lambda m, n: (m / n) * (m / n), magnitudes=True),
        Twist(
            "variance",
            "sum",
            lambda s, m: (s - m) * (s - m),
            _not_rescaled,
            centre=lambda key, count: key / count,
            adjust=lambda total, m, n, count: total + count * ((m - n) * (m - n)),
        ),
        Twist("recurrence", "prod", _not_weighed, _not_weighed, affine=True),
    )
    return {row.name: row for row in rows}


def carriers() -> dict[str, Best | Twist]:
    """The folds whose state is more than one value, by name."""
    return {**bests(), **twists()}
