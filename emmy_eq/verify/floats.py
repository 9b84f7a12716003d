"""L4: both sides of a rule in floating point, on hostile operands (`emmy_eq.verify.operands`).

EXACT: on every profile, both sides have the same dtype and the same bits, computed in that dtype; any NaN is as good as another.

Any other class, with u the unit roundoff of the dtype and S the greatest finite magnitude among the operands and what the
left side computes, in float64:

1. Ordinary operands, and such as the rule names: the sides computed in float64 differ by at most ``factor * 2^-53 * S``.
2. One operand infinite or NaN, at one point or everywhere: in float64, one side is finite where the other is, and 1 holds there;
   where both are infinite they have one sign.  So an error that eager shows does not vanish, and none appears.  Of a rule that
   mends, 1 and 2 ask this only where the left side is finite.
3. Every finite profile: let e(side) be the greatest distance of a side, computed in its dtype, from the left side in float64
   on the same operands.  Then e(right) <= factor * max(e(left), u * S): the right side is not worse than the left by more than
   the factor, except by what rounding the left's own intermediates may do.  Other than with subnormal operands, the right side
   is finite wherever the left is: overflow is not part of any class.  A rule that goes both ways holds in both.
4. Operands of which products, sums or exponentials leave the dtype's range: where the left side in its dtype overflows and in
   float64 does not, the right side overflows too, or is within ``factor * u * S`` of that number.  In elementwise rules an
   infinity has its sign.  What overflows in float64 too has a value on neither side, where it is the outermost operation.

What is discrete (bools, integers) is equal in 1, and not compared in 3, where a rounding may decide a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from emmy_eq import named
from emmy_eq.named import NamedArray
from emmy_eq.rule import Rounding, Rule
from emmy_eq.verify import operands
from emmy_eq.verify.draws import Draw, arguments
from emmy_eq.verify.operands import Array, Operands
from emmy_eq.verify.reading import Reading
from emmy_eq.verify.recorded import calls, record, replay
from emmy_eq.verify.space import AxisSet, bits

# The library's rules stay below a quarter of these (the certificates hold each rule's own figure).
FACTOR: Mapping[Rounding, float] = {Rounding.REASSOCIATES: 64, Rounding.CONTRACTS: 64, Rounding.APPROXIMATES: 4096}
ROUNDOFF: Mapping[str, float] = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


@dataclass(slots=True)
class Peak:
    """The greatest finite magnitude that an evaluation met, the coarsest roundoff, and how many of its arrays are not finite."""

    value: float = 0.0
    roundoff: float = 0.0
    infinite: int = 0

    def see(self, array: Array, dtype: str) -> None:
        if array.dtype.kind == "f" and array.size:
            finite = np.isfinite(array)
            self.value = max(self.value, float(np.max(np.abs(array), initial=0.0, where=finite)))
            self.roundoff = max(self.roundoff, ROUNDOFF.get(dtype, 0.0))
            self.infinite += not finite.all()


@dataclass(frozen=True, slots=True, eq=False)
class Floats(Reading):
    """A named array; ``exact`` computes every operation in its dtype, otherwise floats are f64 and ``peak`` sees them."""

    value: NamedArray
    dtype: str
    extents: tuple[int, ...]
    exact: bool
    peak: Peak

    def _make(self, value: NamedArray, dtype: str) -> Self:
        if not self.exact:
            self.peak.see(value.array, dtype)
        return type(self)(value, dtype, self.extents, self.exact, self.peak)

    def _over(self, k: AxisSet) -> dict[str, int]:
        return {f"a{a}": self.extents[a] for a in bits(k.mask)}

    def _op(self, name: str, *others: Self) -> Self:
        return self._make(named.apply(name, self.value, *(x.value for x in others)), self.result_dtype(name, others))

    def _reduce(self, monoid: Any, k: AxisSet) -> Self:
        return self._make(named.reduce(monoid, self.value, self._over(k), self.dtype), self.dtype)

    def _scan(self, monoid: Any, k: AxisSet) -> Self:
        return self._make(named.scan(monoid, self.value, {f"a{k.only()}": self.extents[k.only()]}), self.dtype)

    def _running(self, name: str, v: Self, k: AxisSet) -> Self:
        return self._make(named.running(name, self.value, v.value, self._over(AxisSet(1 << k.only(), self.extents))), v.dtype)

    def _twist(self, name: str, v: Self, k: AxisSet) -> Self:
        return self._make(named.twist(name, self.value, v.value, self._over(k), self.dtype), self.dtype)

    def cast(self, dtype: Any) -> Self:
        return self._make(named.cast(self.value, dtype, not self.exact), dtype)

    def like(self, value: float) -> Self:
        with np.errstate(over="ignore"):  # beyond the range of the dtype that is tried
            return self._make(named.scalar(value, self.dtype, not self.exact), self.dtype)

    @property
    def free(self) -> AxisSet:
        return AxisSet(sum(1 << int(a[1:]) for a in self.value.axes), self.extents)

    def over(self, axes: AxisSet) -> Array:
        return self.value.over(self._over(axes))


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides over the axes that either has, with what each met where they are in float64."""

    lhs: Array
    rhs: Array
    left: Peak
    right: Peak

    def swapped(self) -> Sides:
        return Sides(self.rhs, self.lhs, self.right, self.left)


def refutes(rule: Rule, draw: Draw) -> str | None:
    """Why ``draw`` shows ``rule`` to be wrong; None where it holds (or the guard does not)."""
    for name, profile in operands.of_draw(rule, draw).items():
        chosen = operands.one_special if name == "special" and rule.rounding is not Rounding.EXACT else profile
        if (why := refuted_on(rule, draw, operands.draw_operands(rule, draw, chosen), name)) is not None:
            return why
    return None


def refuted_on(rule: Rule, draw: Draw, values: Operands, profile: str = "ordinary") -> str | None:
    """The criterion on given operands."""
    if rule.rounding is Rounding.EXACT:
        sides = both_sides(rule, draw, values, exact=True)
        return same_bits(sides.lhs, sides.rhs) if sides is not None else None
    wide = both_sides(rule, draw, values, exact=False)
    if wide is None:
        return None
    if profile == "special":
        return _same_ends(rule, wide.lhs, wide.rhs) or same_number(rule, wide)
    if profile == "named":  # of what is computed from an overflow in float64 nothing is known; what overflows last is no number
        known = np.isfinite(wide.lhs) | (np.isinf(wide.lhs) & (wide.left.infinite == 1))
        wide = replace(wide, rhs=np.where(known, wide.rhs, wide.lhs))
    if profile in ("ordinary", "named") and (why := same_number(rule, wide)) is not None:
        return why
    narrow = both_sides(rule, draw, values, exact=True)
    if draw.dtype == "f64" or narrow is None or wide.lhs.dtype.kind != "f":
        return None
    judge = _overflows_alike if profile == "beyond" else partial(_no_worse, profile=profile)
    why = judge(rule, draw, wide, narrow)
    return judge(rule, draw, wide.swapped(), narrow.swapped()) if why is None and record(rule).both else why


def both_sides(rule: Rule, draw: Draw, values: Operands, exact: bool) -> Sides | None:
    """Both sides of the rule on these operands; None where its guard does not hold."""

    def argument(name: str, dtype: str, mask: int, peak: Peak) -> Floats:
        array = values[name]
        wide = array if exact or dtype in ("bool", "i64") else array.astype(np.float64)
        peak.see(wide, dtype)
        return Floats(NamedArray(tuple(f"a{a}" for a in bits(mask)), wide), dtype, draw.extents, exact, peak)

    recording = record(rule)
    left, right = Peak(), Peak()
    env = arguments(rule, draw, partial(argument, peak=left))
    if not all(replay(guard, env) for guard in recording.when):
        return None
    lhs = replay(recording.lhs, env)
    rhs = replay(recording.rhs, arguments(rule, draw, partial(argument, peak=right)))
    axes = lhs.free | rhs.free  # of another axis the extent may be 0, and then nothing would be compared
    return Sides(lhs.over(axes), rhs.over(axes), left, right)


def same_bits(lhs: Array, rhs: Array) -> str | None:
    """Any NaN is as good as another; zeros must agree in sign."""
    if lhs.dtype != rhs.dtype:
        return f"{lhs.dtype} became {rhs.dtype}"
    if lhs.dtype.kind in "biu":
        return _first(lhs, rhs, lhs != rhs)
    wide, other = lhs.astype(np.float64), rhs.astype(np.float64)
    same = (np.isnan(wide) & np.isnan(other)) | ((wide == other) & (np.signbit(wide) == np.signbit(other)))
    return _first(lhs, rhs, ~same)


def same_number(rule: Rule, sides: Sides) -> str | None:
    """1: the same real number; NaN or infinite on one side only is a difference."""
    lhs, rhs = sides.lhs, sides.rhs
    if lhs.dtype.kind in "biu" or rhs.dtype.kind in "biu":
        return _first(lhs, rhs, lhs != rhs)
    finite = np.isfinite(lhs) & np.isfinite(rhs)
    bound = FACTOR[rule.rounding] * ROUNDOFF["f64"] * max(sides.left.value, 1.0)
    with np.errstate(invalid="ignore"):
        differ = np.where(finite, np.abs(lhs - rhs) > bound, _one_is_finite(rule, lhs, rhs))
    return _first(lhs, rhs, differ)


def _one_is_finite(rule: Rule, lhs: Array, rhs: Array) -> Array:
    """Where a value appears or vanishes; in a rule that mends it may appear."""
    return np.isfinite(lhs) & ~np.isfinite(rhs) if rule.mends else np.isfinite(lhs) != np.isfinite(rhs)


def _same_ends(rule: Rule, lhs: Array, rhs: Array) -> str | None:
    """2: finite together, and infinite with one sign."""
    if lhs.dtype.kind != "f" or rhs.dtype.kind != "f":
        return _first(lhs, rhs, lhs != rhs)
    differ = _one_is_finite(rule, lhs, rhs) | (np.isinf(lhs) & np.isinf(rhs) & (lhs != rhs))
    if rule.mends:  # of ordinary numbers nothing overflows, so an infinity is one
        differ |= np.isinf(lhs) & (lhs != rhs)
    return _first(lhs, rhs, differ)


def _no_worse(rule: Rule, draw: Draw, wide: Sides, narrow: Sides, profile: str) -> str | None:
    """3: the right side's own error is within the factor, and it overflows nowhere on its own."""
    lhs, rhs = narrow.lhs.astype(np.float64), narrow.rhs.astype(np.float64)
    usual = np.isfinite(lhs) & np.isfinite(wide.lhs)
    if profile != "subnormal" and draw.dtype != "f16" and np.any(usual & ~np.isfinite(rhs)):  # 65504 is soon overrun
        return _first(narrow.lhs, narrow.rhs, usual & ~np.isfinite(rhs))
    ratio, at = error_ratio(draw, wide, narrow)
    if ratio <= FACTOR[rule.rounding]:
        return None
    return f"{profile} operands: {_first(narrow.lhs, narrow.rhs, at)}, exactly {wide.lhs[at][0]!s}: {ratio:.0f} times the error of the left"


def _overflows_alike(rule: Rule, draw: Draw, wide: Sides, narrow: Sides) -> str | None:
    """4: where the left side overflows, the right side has no value but the number that the left stands for."""
    lhs, rhs = narrow.lhs.astype(np.float64), narrow.rhs.astype(np.float64)
    lost = ~np.isfinite(lhs) & np.isfinite(wide.lhs)
    bound = FACTOR[rule.rounding] * max(wide.left.roundoff, wide.right.roundoff) * wide.left.value
    with np.errstate(invalid="ignore"):
        wrong = lost & np.isfinite(rhs) & (np.abs(rhs - wide.lhs) > bound)
    if not any(calls(record(rule), "_reduce", "_scan", "_running", "_twist")):  # a sum may overflow on its way, to either side
        wrong |= lost & np.isinf(lhs) & np.isinf(rhs) & (lhs != rhs) & (np.sign(wide.lhs) == np.sign(lhs))
    why = _first(narrow.lhs, narrow.rhs, wrong)
    return why and f"operands that overflow: {why}, exactly {wide.lhs[wrong][0]!s}"


def error_ratio(draw: Draw, wide: Sides, narrow: Sides) -> tuple[float, Array]:
    """e(right) / max(e(left), u * S), and where the right side is worst."""
    lhs, rhs = narrow.lhs.astype(np.float64), narrow.rhs.astype(np.float64)
    both = np.isfinite(lhs) & np.isfinite(rhs) & np.isfinite(wide.lhs)
    with np.errstate(invalid="ignore"):
        left, right = (np.where(both, np.abs(x - wide.lhs), 0.0) for x in (lhs, rhs))
    worst = float(np.max(right, initial=0.0))
    allowed = max(float(np.max(left, initial=0.0)), ROUNDOFF[draw.dtype] * wide.left.value)
    return (worst / allowed if worst > 0 else 0.0), (right == worst)


def _first(lhs: Array, rhs: Array, differ: Array) -> str | None:
    if not np.any(differ):
        return None
    at = tuple(int(n) for n in np.argwhere(differ)[0])
    return f"left {lhs[at]!s}, right {rhs[at]!s} at {at}"
