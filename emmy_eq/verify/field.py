"""L1: values modulo a chain of primes: the algebra's reading in which an identity of real functions is exact, so that one
random draw refutes a false one with error at most degree/2^58 (Schwartz, Zippel).

p0 = 2 p1 + 1, p1 = 2 p2 + 1, p2 = 2 p3 + 1, all prime.  A float is a residue modulo each p.  exp(x) modulo p_i is
4^(x mod p_(i+1)): 4 has order p_(i+1) there, hence exp(a + b) = exp(a) exp(b), and exponentials nest three deep.  Maximum
and minimum follow a keyed total order, so they are a lattice, but know nothing of addition; magnitudes multiply.  sqrt is x^((p+1)/4): a
root of residues, and multiplicative.  Other functions are keyed hashes.  Integers and bools are themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Self

import numpy as np

from emmy_eq import named, ops, terms
from emmy_eq.rule import Equation, Rule
from emmy_eq.verify.draws import Abstains, Draw, arguments
from emmy_eq.verify.reading import Stepwise
from emmy_eq.verify.recorded import calls, record, subtrees
from emmy_eq.verify.space import AxisSet, Space, bits, key_of, mix

PRIMES = (2305843009211318399, 1152921504605659199, 576460752302829599, 288230376151414799)
INFINITY = key_of("infinity", 1) % PRIMES[-1]  # +inf, and its negation -inf: the ends of the keyed order
GENERATOR = 4

Parts = tuple[Any, ...]  # one array a prime (Python ints); integers and bools have one array, of int64 or bool


@dataclass(frozen=True, slots=True, eq=False)
class Residue(Stepwise):
    """A value over ``space``; ``mask`` holds the axes that it may depend on."""

    parts: Parts
    dtype: str
    mask: int
    space: Space

    def _make(self, parts: Parts, dtype: str, mask: int) -> Self:
        return type(self)(parts, dtype, mask, self.space)

    def _op(self, name: str, *others: Self) -> Self:
        args = (self, *others)
        mask, dtype = reduce(int.__or__, (a.mask for a in args)), self.result_dtype(name, others)
        if name == "where":
            parts = tuple(np.where(self.parts[0], a, b) for a, b in zip(others[0].parts, others[1].parts, strict=False))
            return self._make(parts, dtype, mask)
        if args[-1].dtype not in ops.FLOATS:
            with np.errstate(all="ignore"):
                return self._make((ops.ops()[name].numpy(*(a.parts[0] for a in args)),), dtype, mask)
        return self._make(_float_op(name, [a.parts for a in args], self.space), dtype, mask)

    def argreduce(self, name: str, k: AxisSet) -> Residue:
        """The position of the first best sample among the axes of ``k`` flattened in ascending order."""
        axes = bits(k.mask)
        rank = _order(self.parts[0], self.space) if self.dtype in ops.FLOATS else self.parts[0]
        rank = np.moveaxis(self.space.spread(rank, k.mask), [1 + a for a in axes], range(-len(axes), 0))
        flat = rank.reshape(*rank.shape[: rank.ndim - len(axes)], -1)
        best = (np.argmax if name == "argmax" else np.argmin)(flat, axis=-1)
        position = np.zeros((), np.int64)
        for a in axes:
            position = np.add.outer(position * self.space.extents[a], np.asarray(self.space.samples[a]))
        found = np.expand_dims(position.reshape(-1)[best], [1 + a for a in axes])
        return self._make((found,), "i64", self.mask & ~k.mask)

    def pick(self, axis: int, at: Any) -> Residue:
        """This value, known at the samples of ``axis``, at the last sample that is not beyond ``at``."""
        last = np.searchsorted(self.space.samples[axis], at, side="right") - 1
        out = tuple(np.take(p, [0], axis=1 + axis) for p in self.parts)
        for n in range(1, len(self.space.samples[axis])):
            out = tuple(np.where(last >= n, np.take(p, [n], axis=1 + axis), o) for p, o in zip(self.parts, out, strict=True))
        return self._make(out, self.dtype, self.mask)

    def varies_along(self, mask: int) -> int | None:
        """Some axis of ``mask`` that the value does vary along, if there is one."""
        for axis in range(self.space.rank - 1):
            if mask >> axis & 1 and any(np.any(p != np.take(p, [0], axis=1 + axis)) for p in self.parts if p.shape[1 + axis] > 1):
                return axis
        return None

    def _weighed(self, axis: int) -> Self:
        weights = self.space.weights(axis)
        parts = [self.space.spread(p, 1 << axis) * weights.astype(p.dtype) for p in self.parts]
        if self.dtype in ops.FLOATS:
            parts = [x % p for x, p in zip(parts, PRIMES, strict=False)]
        return self._make(tuple(parts), self.dtype, self.mask)

    def _places(self, axis: int) -> list[Self]:
        spread = [self.space.spread(p, 1 << axis) for p in self.parts]
        count = len(self.space.samples[axis])
        return [self._make(tuple(np.take(p, [n], axis=1 + axis) for p in spread), self.dtype, self.mask) for n in range(count)]

    def _joined(self, steps: Sequence[Self], axis: int) -> Self:
        columns = zip(*(s.parts for s in steps), strict=False)  # an exponential knows one prime less
        parts = tuple(np.concatenate(np.broadcast_arrays(*p), axis=1 + axis) for p in columns)
        return self._make(parts or self.parts, self.dtype, self.mask)

    def _identity(self, monoid: str, axis: int) -> Self:
        unit = self.like(ops.monoids()[monoid].identity(self.dtype)).parts
        shape = [1 if d == 1 + axis else n for d, n in enumerate(self.parts[0].shape)]
        return self._make(tuple(np.broadcast_to(u, shape) for u in unit[: len(self.parts)]), self.dtype, self.mask)

    def cast(self, dtype: Any) -> Self:
        was, to = self.dtype in ops.FLOATS, dtype in ops.FLOATS
        if was and to:
            return self._make(self.parts, dtype, self.mask)
        if to:
            whole = self.parts[0].astype(np.int64).astype(object)
            return self._make(tuple(whole % p for p in PRIMES), dtype, self.mask)
        if dtype == "bool":
            return self._make((self.parts[0] != 0,), dtype, self.mask)
        whole = self._whole(str(dtype)) if was else self.parts[0]
        return self._make((np.asarray(whole).astype(ops.DTYPES[dtype]),), dtype, self.mask)

    def _whole(self, dtype: str) -> Any:
        """Of the space's numbers what a cast gives, of all other floats a hash."""
        whole = (mix(self.parts[0], key_of("cast", self.space.key)) % np.uint64(1 << 20)).astype(np.int64)
        for x in (*self.space.numbers, np.inf, -np.inf, np.nan):
            known = constant(self.dtype, terms.to_bits(self.dtype, x), self.space)[0]
            whole = np.where(self.parts[0] == known, named.cast(named.scalar(x, self.dtype), dtype).array.astype(whole.dtype), whole)
        return whole

    def like(self, value: float) -> Self:
        return self._make(constant(self.dtype, terms.to_bits(self.dtype, value), self.space), self.dtype, 0)

    @property
    def free(self) -> AxisSet:
        return AxisSet(self.mask, self.space.extents)

    def agrees(self, other: Residue) -> bool:
        """Whether both are the same function modulo the first prime.  The others serve as exponents, and a root takes its sign modulo
        each by itself: that of a square is one of the magnitude's two roots there."""
        return self.dtype == other.dtype and bool(np.all(np.equal(self.parts[0], other.parts[0])))


def constant(dtype: str, bits_: int, space: Space) -> Parts:
    """The residues of a literal."""
    value = terms.from_bits(dtype, bits_)
    shape = [1] * space.rank
    if dtype not in ops.FLOATS:
        return (np.full(shape, value),)
    exact = float(value)
    if np.isfinite(exact):
        return tuple(np.full(shape, _residue(exact, p), object) for p in PRIMES)
    end = {np.inf: INFINITY, -np.inf: -INFINITY}.get(exact, 7 * INFINITY)
    return tuple(np.full(shape, end % p, object) for p in PRIMES)


def random(dtype: str, mask: int, space: Space, name: str) -> Residue:
    """A value that varies over ``mask``, the same for the same name and key."""
    point = np.zeros([1] * space.rank, np.uint64)
    for axis in bits(mask):
        point = mix(point + space.along(axis, space.samples[axis]).astype(np.uint64), key_of(f"{name}.{axis}", space.key))
    return Residue(hashed(dtype, point, key_of(name, space.key)), dtype, mask, space)


def hashed(dtype: str, point: Any, key: int) -> Parts:
    """Residues from hashed coordinates; integers are small, so that they may index."""
    if dtype == "bool":
        return ((mix(point, key) & np.uint64(1)).astype(np.bool_),)
    if dtype not in ops.FLOATS:
        return ((mix(point, key) % np.uint64(5)).astype(ops.DTYPES[dtype]),)
    return tuple(mix(point, key_of(f"p{n}", key)).astype(object) % p for n, p in enumerate(PRIMES))


def _order(part: Any, space: Space) -> Any:
    """The keyed order's rank of every residue modulo p0: -inf least, +inf greatest, squares above all others.

    Of x and -x one is a square, since p0 = 3 mod 4; so |x| is that one, and |x y| is |x| |y|.  The space's numbers share their ranks
    out among themselves, so that they are ordered as numbers.
    """
    rank = _rank(part, space.key)
    known, ranks = _ranks(space.numbers, space.key)
    if known.size:
        at = np.minimum(np.searchsorted(known, part.astype(np.uint64)), known.size - 1)
        rank = np.where(known[at] == part, ranks[at], rank)
    rank = np.where(part == INFINITY, np.uint64((1 << 64) - 1), rank)
    return np.where(part == PRIMES[0] - INFINITY, np.uint64(0), rank)


def _rank(part: Any, key: int) -> Any:
    square = np.equal(_POW(part, (PRIMES[0] - 1) // 2, PRIMES[0]), 1)
    return (mix(part, key_of("order", key)) >> np.uint64(2)) + np.where(square, np.uint64(1 << 62), np.uint64(1))


@lru_cache(maxsize=64)
def _ranks(numbers: frozenset[float], key: int) -> tuple[Any, Any]:
    """The residues of ``numbers``, ascending, and the rank of each."""
    residues = np.array([_residue(x, PRIMES[0]) for x in sorted(numbers)], object)
    ranks = np.sort(_rank(residues, key)) if residues.size else residues
    by_residue = np.argsort(residues)
    return residues[by_residue].astype(np.uint64), ranks[by_residue]


def _residue(number: float, p: int) -> int:
    ratio = Fraction(number)
    return ratio.numerator * pow(ratio.denominator, -1, p) % p


_POW = np.frompyfunc(pow, 3, 1)

_RING: dict[str, Callable[..., Any]] = {
    "add": lambda p, a, b: (a + b) % p,
    "sub": lambda p, a, b: (a - b) % p,
    "mul": lambda p, a, b: a * b % p,
    "fma": lambda p, a, b, c: (a * b + c) % p,
    "neg": lambda p, a: -a % p,
    "div": lambda p, a, b: a * _POW(b, p - 2, p) % p,  # x / 0 is 0, which no random draw meets
    "reciprocal": lambda p, a: _POW(a, p - 2, p),
    "sqrt": lambda p, a: _POW(a, (p + 1) // 4, p),
    "rsqrt": lambda p, a: _POW(_POW(a, (p + 1) // 4, p), p - 2, p),
}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "maximum": np.greater_equal, "minimum": np.less_equal,
}  # fmt: skip


def _float_op(name: str, args: list[Parts], space: Space) -> Parts:
    name = ops.exact(name)
    if name in _RING:
        return tuple(_RING[name](p, *column) for p, *column in zip(PRIMES, *args, strict=False))
    if name == "exp":
        return _exp(args[0], space.key)
    if name == "sigmoid":
        e = _exp(_float_op("neg", args, space), space.key)
        return _float_op("reciprocal", [tuple((x + 1) % p for x, p in zip(e, PRIMES, strict=False))], space)
    if name == "tanh":
        s = _float_op("sigmoid", [tuple(2 * x % p for x, p in zip(args[0], PRIMES, strict=False))], space)
        return tuple((2 * x - 1) % p for x, p in zip(s, PRIMES, strict=False))
    if name == "pow":
        return _power(args[0], args[1], space.key)
    if name == "abs":
        return _float_op("maximum", [args[0], _float_op("neg", args, space)], space)
    if name in ("eq", "ne"):
        return (ops.ops()[name].numpy(args[0][0], args[1][0]).astype(np.bool_),)
    if name in ("isnan", "isinf"):
        at_end = (args[0][0] == INFINITY) | (args[0][0] == PRIMES[0] - INFINITY)
        return (np.asarray(at_end if name == "isinf" else args[0][0] == 7 * INFINITY % PRIMES[0], np.bool_),)
    if name in _COMPARE:
        holds = _COMPARE[name](*(_order(a[0], space) for a in args))
        return (holds,) if name in ("lt", "le", "gt", "ge") else tuple(np.where(holds, a, b) for a, b in zip(*args, strict=False))
    return _hash(name, args, space.key)


def _exp(x: Parts, key: int) -> Parts:
    if len(x) == 1:
        return _hash("exp", [x], key)
    return tuple(_POW(GENERATOR, exponent, p) for exponent, p in zip(x[1:], PRIMES, strict=False))


def _power(base: Parts, exponent: Parts, key: int) -> Parts:
    """A small whole exponent means repeated multiplication; any other is a keyed hash."""
    value = exponent[0].flat[0] if exponent[0].size == 1 else None
    if value is None or not value < 64:
        return _hash("pow", [base, exponent], key)
    return tuple(_POW(b, value, p) for b, p in zip(base, PRIMES, strict=False))


def _hash(name: str, args: list[Parts], key: int) -> Parts:
    out = []
    for n, (p, *column) in enumerate(zip(PRIMES, *args, strict=False)):
        h = np.zeros((), np.uint64)
        for a in column:
            h = mix(h ^ a.astype(np.uint64), key_of(f"{name}{n}", key))
        out.append(h.astype(object) % p)
    return tuple(out)


def residues(rule: Rule, draw: Draw) -> Equation:
    """The rule's body over random residues."""
    space = Space.full(draw.extents, draw.key)
    return rule.body(*arguments(rule, draw, lambda name, dtype, mask: random(dtype, mask, space, name)).values())


def refutes(rule: Rule, draw: Draw) -> str | None:
    """L1: both sides are the same function modulo primes.  Raises `Abstains` where they differ, and take logarithms of different terms."""
    eq = residues(rule, draw)
    if eq.lhs.agrees(eq.rhs):
        return None
    recording = record(rule)
    left, right = (
        {c for c in subtrees(side) if c.method == "_op" and ops.exact(str(c.args[1])) == "log"} for side in (recording.lhs, recording.rhs)
    )
    if left != right:
        raise Abstains("logarithms modulo a prime are hashes")
    return "the sides differ modulo a prime"


def is_polynomial(rule: Rule) -> bool:
    """Whether both sides are quotients of polynomials in the operands: then a draw on which they agree proves them equal there,
    for its axes, with error below 2^-50 (Schwartz, Zippel); nothing is a keyed function."""
    recording = record(rule)
    if {c.args[1] for c in calls(recording, "_op")} - {"add", "sub", "mul", "div", "fma", "neg", "reciprocal"}:
        return False
    folds = {str(c.args[1]) for c in calls(recording, "_reduce", "_scan", "_twist", "_running")}
    return folds <= {"sum", "prod", "variance", "recurrence"} and not any(kind in ("monoid", "bool") for _, kind in rule.args)
