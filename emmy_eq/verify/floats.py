"""L4: both sides of a rule in floating point.

An EXACT rule must give the same bits in its own dtype, on operands that hold every special value.  Any other rule must
give the same real number up to rounding in float64, and where an operand is infinite or NaN at one point, one side may
not be finite where the other is not: an error that eager shows must not vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from emmy_eq import named, ops
from emmy_eq.algebra import Val
from emmy_eq.named import NamedArray
from emmy_eq.rule import Equation, Rounding, Rule
from emmy_eq.tensor_ir.interpret import dtype_of as storage
from emmy_eq.verify.draws import Draw, dtype_of
from emmy_eq.verify.space import AxisSet, bits

RELATIVE = 1e-9  # float64 keeps 16 digits; a rule's few operations on values of order 1 lose far fewer than seven
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 1.0, 2.0**-149)


@dataclass(frozen=True, slots=True, eq=False)
class Floats(Val):
    """A named array; ``exact`` computes every operation in its dtype, otherwise floats are f64."""

    value: NamedArray
    dtype: str
    extents: tuple[int, ...]
    exact: bool

    def _make(self, value: NamedArray, dtype: str) -> Self:
        return type(self)(value, dtype, self.extents, self.exact)

    def _over(self, k: AxisSet) -> dict[str, int]:
        return {f"a{a}": self.extents[a] for a in bits(k.mask)}

    def _op(self, name: str, *others: Self) -> Self:
        row = ops.ops()[name]
        dtype = (self, *others)[-1].dtype if row.result == "same" else row.result
        return self._make(named.apply(name, self.value, *(x.value for x in others)), dtype)

    def _reduce(self, monoid: Any, k: AxisSet) -> Self:
        return self._make(named.reduce(monoid, self.value, self._over(k), self.dtype), self.dtype)

    def _scan(self, monoid: Any, k: AxisSet) -> Self:
        return self._make(named.scan(monoid, self.value, self._over(k)), self.dtype)

    def _twist(self, name: str, v: Self, k: AxisSet) -> Self:
        return self._make(named.twist(name, self.value, v.value, self._over(k), v.dtype), v.dtype)

    def cast(self, dtype: Any) -> Self:
        return self._make(named.cast(self.value, dtype, not self.exact), dtype)

    def like(self, value: float) -> Self:
        return self._make(named.scalar(value, self.dtype, not self.exact), self.dtype)

    def count(self, k: AxisSet) -> Self:
        return self.like(float(np.prod([self.extents[a] for a in bits(k.mask)])))

    def stored(self, m: AxisSet) -> Self:
        return self

    @property
    def free(self) -> AxisSet:
        return AxisSet(sum(1 << int(a[1:]) for a in self.value.axes), self.extents)

    def has_dtype(self, dtype: Any) -> bool:
        return bool(self.dtype == dtype)


def refutes(rule: Rule, draw: Draw) -> str | None:
    """Why ``draw`` shows ``rule`` to be wrong; None where it holds (or the guard does not)."""
    exact = rule.rounding is Rounding.EXACT
    for special in (False, True):
        eq = sides(rule, draw, exact, special)
        if not all(eq.when):
            return None
        lhs, rhs = (_full(x) for x in (eq.lhs, eq.rhs))
        if (why := _same_bits(lhs, rhs) if exact else _same_number(lhs, rhs)) is not None:
            return why
    return None


def sides(rule: Rule, draw: Draw, exact: bool, special: bool) -> Equation:
    """The rule's body over random named arrays."""
    rng = np.random.default_rng([draw.key, special])
    args: list[Any] = []
    for (_, kind), (_, arg) in zip(rule.args, draw.args, strict=True):
        if kind == "axes":
            args.append(AxisSet(int(arg), draw.extents))
        elif isinstance(arg, str):
            args.append(arg)
        else:
            dtype = dtype_of(kind, draw)
            axes = tuple(f"a{a}" for a in bits(arg))
            array = values(rng, dtype, [draw.extents[a] for a in bits(arg)], exact, special)
            args.append(Floats(NamedArray(axes, array), dtype, draw.extents, exact))
    return rule.body(*args)


def values(rng: np.random.Generator, dtype: str, shape: list[int], exact: bool, special: bool) -> Any:
    """Numbers of order 1, some of them whole; with ``special`` any value where rules are exact, else one of them at one point."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype == "i64":
        return rng.integers(-4, 5, shape)
    array = np.where(rng.random(shape) < 0.5, rng.normal(size=shape), rng.integers(-2, 3, shape))
    if special and exact:
        array = np.where(rng.random(shape) < 0.7, rng.choice(SPECIAL, shape), array)
    if special and not exact and rng.random() < 0.5:
        np.asarray(array).flat[rng.integers(array.size)] = rng.choice([np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        return array.astype(storage(dtype, float64=not exact))


def _full(x: Floats) -> Any:
    return x.value.over({f"a{n}": e for n, e in enumerate(x.extents)})


def _same_bits(lhs: Any, rhs: Any) -> str | None:
    """Any NaN is as good as another; zeros must agree in sign."""
    if lhs.dtype != rhs.dtype:
        return f"{lhs.dtype} became {rhs.dtype}"
    if lhs.dtype.kind in "biu":
        return _first(lhs, rhs, lhs != rhs)
    wide, other = lhs.astype(np.float64), rhs.astype(np.float64)
    same = (np.isnan(wide) & np.isnan(other)) | ((wide == other) & (np.signbit(wide) == np.signbit(other)))
    return _first(lhs, rhs, ~same)


def _same_number(lhs: Any, rhs: Any) -> str | None:
    if lhs.dtype.kind in "biu" or rhs.dtype.kind in "biu":
        return _first(lhs, rhs, lhs != rhs)
    finite = np.isfinite(lhs) & np.isfinite(rhs)
    scale = 1 + np.max(np.abs(lhs), initial=0, where=np.isfinite(lhs))
    with np.errstate(invalid="ignore"):
        differ = np.where(finite, np.abs(lhs - rhs) > RELATIVE * scale, np.isfinite(lhs) != np.isfinite(rhs))
    return _first(lhs, rhs, differ)


def _first(lhs: Any, rhs: Any, differ: Any) -> str | None:
    if not np.any(differ):
        return None
    at = tuple(int(n) for n in np.argwhere(differ)[0])
    return f"left {lhs[at]!s}, right {rhs[at]!s} at {at}"
