"""Conversions between dtypes.  A 16-bit program stores 16 bits and computes in 32: fused, the values in between keep 32."""

from __future__ import annotations

from collections.abc import Iterator

from emmy_eq.algebra import Val
from emmy_eq.rule import Bool, Dtype, Equation, Phase, Rounding, Rule, rewrite, rule

WIDENINGS = (("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64"))


def _widen_and_back() -> Iterator[Rule]:
    for narrow, wide in WIDENINGS:

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"widen_{narrow}_to_{wide}_and_back")
        def widen_and_back(x: Val, narrow: str = narrow, wide: str = wide) -> Equation:
            """Every narrow number is a wide one."""
            return rewrite(x.cast(wide).cast(narrow), x, when=x.has_dtype(narrow))

        yield widen_and_back


def _widen_twice() -> Iterator[Rule]:
    for narrow in ("f16", "bf16"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"widen_{narrow}_twice")
        def widen_twice(x: Val, narrow: str = narrow) -> Equation:
            """A number that is wide already widens to the same."""
            return rewrite(x.cast("f32").cast("f64"), x.cast("f64"), when=x.has_dtype(narrow))

        yield widen_twice


def _of_bools() -> Iterator[Rule]:
    for number in ("i64", "i32", "f32", "f64"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"bool_to_{number}_and_back")
        def back(x: Bool, number: str = number) -> Equation:
            """0 and 1 are numbers of every type."""
            return rewrite(x.cast(number).cast("bool"), x)

        yield back
    for number in ("f32", "f64"):

        @rule(Rounding.EXACT, Phase.NORMALIZE, f"bool_to_i64_to_{number}")
        def over(x: Bool, number: str = number) -> Equation:
            """0 and 1 need no detour."""
            return rewrite(x.cast("i64").cast(number), x.cast(number))

        yield over


@rule(Rounding.EXACT, Phase.NORMALIZE)
def cast_to_own(x: Val, own: Dtype) -> Equation:
    """A conversion to the value's own dtype changes nothing."""
    return rewrite(x.cast(own), x, when=x.has_dtype(own))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def cast_branches(c: Bool, a: Val, b: Val, to: Dtype) -> Equation:
    """A choice converts as its branches do, which brings a widening next to the narrowing that it undoes."""
    return rewrite(c.where(a, b).cast(to), c.where(a.cast(to), b.cast(to)))


@rule(Rounding.CONTRACTS)
def drop_round_trip(x: Val, narrow: Dtype, wide: Dtype) -> Equation:
    """A value that is narrowed and widened again keeps its wide digits: one rounding less."""
    return rewrite(x.cast(narrow).cast(wide), x, when=(x.has_dtype(wide), narrow.is_float(), wide.is_float()))


def rules() -> tuple[Rule, ...]:
    return (*_widen_and_back(), *_widen_twice(), *_of_bools(), cast_to_own, cast_branches, drop_round_trip)
