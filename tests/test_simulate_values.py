"""Scalar operations in the simulator round and convert as the hardware does."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from emmy_eq.codegen.simulate import values

F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest(x: Fraction) -> np.float32:
    """The f32 nearest to a rational, ties to even, found among the neighbours of a first guess."""
    guess = np.float32(float(x))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [c for c in near if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - x), int(c.view(np.uint32)) & 1))


@given(F32, F32, F32)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0 or not Fraction(2) ** -126 <= abs(exact) < Fraction(2) ** 127:
        return  # zero's sign, subnormal results and overflow are outside the promise
    found = values.fma(np.float32(a), np.float32(b), np.float32(c))
    assert found == nearest(exact)


def test_fma_that_rounding_through_float64_gets_wrong() -> None:
    # 4097 * 16773121 = 2**36 + 1, so the sum is 1 + 2**-24 + 2**-60: float64 drops the last term and leaves a tie.
    a, b, c = np.float32(4097), np.float32(16773121) * np.float32(2.0**-60), np.float32(1)
    assert (a.astype(np.float64) * b + c).astype(np.float32) == 1
    assert values.fma(a, b, c) == np.nextafter(np.float32(1), np.float32(2))


@pytest.mark.parametrize(
    ("x", "dtype", "wanted"),
    [
        (np.float32(3e9), "i32", 2**31 - 1),
        (np.float32(-3e9), "i32", -(2**31)),
        (np.float32(np.nan), "i32", 0),
        (np.float32(np.nan), "i64", -(2**63)),
        (np.float64(np.nan), "i32", -(2**31)),
        (np.float32(np.inf), "i64", 2**63 - 1),
        (np.float32(-1.9), "i32", -1),
        (np.float32(300.0), "i8", 44),
        (np.float32(-1.0), "u8", 255),
        (np.int64(2**32 + 5), "i32", 5),
        (np.float32(np.nan), "bool", True),
        (np.float32(-0.0), "bool", False),
    ],
)
def test_cast(x: np.generic, dtype: str, wanted: int) -> None:
    with np.errstate(all="ignore"):
        assert values.cast(np.array([x]), dtype)[0] == wanted


def test_halves_pack_low_first() -> None:
    low, high = np.array([1.0, 2.0], np.float16), np.array([3.0, 4.0], np.float16)
    packed = values.apply("pack", [low, high], "i32")
    assert packed.view(np.float16).tolist() == [1.0, 3.0, 2.0, 4.0]
