"""The simplifier of index expressions: same value everywhere, a normal form, and the digits that axis inference reads off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy_eq import index as ix
from emmy_eq.index import Digit, Idx, const, var

NAMES = ("a", "b", "c")
LEAVES = st.one_of(st.sampled_from([var(n) for n in NAMES]), st.integers(-3, 9).map(const))
DIVISORS = st.sampled_from([2, 3, 4, 6, 8, 12])


def _grow(inner: st.SearchStrategy[Idx]) -> st.SearchStrategy[Idx]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0].min(p[1])),
        pair.map(lambda p: p[0].max(p[1])),
        st.tuples(inner, st.sampled_from([-1, 2, 3, 4, 8])).map(lambda p: p[0] * p[1]),
        st.tuples(inner, DIVISORS).map(lambda p: p[0] // p[1]),
        st.tuples(inner, DIVISORS).map(lambda p: p[0] % p[1]),
    )


EXPRESSIONS = st.recursive(LEAVES, _grow, max_leaves=8)
EXTENTS = st.fixed_dictionaries({n: st.sampled_from([1, 2, 3, 4, 8, 12]) for n in NAMES})


def _values(x: Idx, extents: dict[str, int]) -> np.ndarray:
    grid = np.indices([extents[n] for n in NAMES])
    return np.broadcast_to(ix.evaluate(x, dict(zip(NAMES, grid, strict=True))), grid[0].shape)


@settings(max_examples=400)
@given(EXPRESSIONS, EXTENTS)
def test_simplify_keeps_the_value_and_is_idempotent(x: Idx, extents: dict[str, int]) -> None:
    y = ix.simplify(x, extents)
    np.testing.assert_array_equal(_values(x, extents), _values(y, extents))
    assert ix.simplify(y, extents) == y


@settings(max_examples=200)
@given(EXPRESSIONS, EXTENTS)
def test_bounds_enclose(x: Idx, extents: dict[str, int]) -> None:
    low, high = ix.bounds(x, extents)
    values = _values(x, extents)
    assert low <= values.min()
    assert values.max() <= high


@settings(max_examples=200)
@given(EXPRESSIONS, EXTENTS)
def test_digits_add_up(x: Idx, extents: dict[str, int]) -> None:
    simple = ix.simplify(x, extents)
    digits = ix.digits(simple, extents)
    if digits is None:
        return
    total = const(0)
    for d in digits:
        total = total + var(d.name) // d.low % (d.high // d.low) * d.weight
    np.testing.assert_array_equal(_values(total, extents), _values(x, extents))


@settings(max_examples=200)
@given(EXPRESSIONS)
def test_text_reads_back(x: Idx) -> None:
    assert ix.parse(ix.show(x)) == x


A, B, C = var("a"), var("b"), var("c")
SIZES = {"a": 32, "b": 8, "c": 2048}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((A * 8 + B) // 8, A),
        ((A * 8 + B) % 8, B),
        ((A * 8 + B) // 16, A // 2),  # a factor common to the divisor
        ((A * 8 + B) % 16, A % 2 * 8 + B),
        (C // 64 * 64 + C % 64, C),
        (C // 64 * 8 + C % 64 // 8, C // 8),
        (C // 64 % 32, C // 64),
        (C % 64 % 32, C % 32),
        (C // 8 // 8, C // 64),
        ((A + 70) // 64, (A + 6) // 64 + 1),
        ((A + 32) // 64, const(0)),
        ((A - 32) // 64, const(-1)),  # division floors
        ((A - 40).max(0), const(0)),
        (A.min(31), A),
    ],
)
def test_simplify_examples(before: Idx, after: Idx) -> None:
    assert ix.simplify(before, SIZES) == ix.simplify(after, SIZES)


@pytest.mark.parametrize(
    ("x", "y"), [(C // 64 * 64, C), ((C * 3) // 4, C // 4 * 3), ((A - 1) // 2 * 2, A - 1), ((A + C) % 8, A % 8 + C % 8)]
)
def test_what_must_not_be_provable(x: Idx, y: Idx) -> None:
    assert ix.simplify(x, SIZES) != ix.simplify(y, SIZES)


def test_digits_of_views() -> None:
    assert ix.digits(A * 8 + B, SIZES) == (Digit("a", 1, 32, 8), Digit("b", 1, 8, 1))
    assert ix.digits(C // 64, SIZES) == (Digit("c", 64, 2048, 1),)
    assert ix.digits(C // 8 % 8, SIZES) == (Digit("c", 8, 64, 1),)
    assert ix.digits(C // 48, SIZES) is None  # 48 does not divide 2048
    assert ix.digits(A + 1, SIZES) is None
    assert ix.digits(A * -1 + 31, SIZES) is None


def test_divisor_must_be_a_positive_constant() -> None:
    with pytest.raises(ValueError, match="positive constant"):
        A // B
    with pytest.raises(ValueError, match="positive constant"):
        A % 0
