"""The op table's NumPy references are torch's semantics, on values that break careless ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch

from emmy_eq.ops import DTYPES, exact, monoids, ops

FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -7.0,
    148.0,
    37.0,
    1e-30,
    1e30,
    -1e38,
    inf,
    -inf,
    nan,
    88.0,
    -100.0,
    2.0**24,
]
INTS = [0, 1, -1, 2, -2, 3, 7, -7, 10, -100, 31, 2**31 - 1, -(2**31)]
TORCH: dict[str, Callable[..., Any]] = {
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"), "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
    "round_f16": lambda x: x.half().to(x.dtype), "round_bf16": lambda x: x.bfloat16().to(x.dtype),
}  # fmt: skip
INTEGER = "add sub mul floordiv truncdiv mod fmod pow neg abs maximum minimum sign eq ne lt le gt ge and or xor not".split()
FLOAT = [name for name in ops() if exact(name) == name and name not in ("fma", "where", "and", "or", "xor", "not", "shl", "shr")]
DIVISIONS = ("floordiv", "truncdiv", "mod", "fmod")


def operands(values: list[Any], dtype: str, arity: int) -> list[np.ndarray[Any, Any]]:
    grid = list(itertools.product(values, repeat=arity))
    return [np.array(column, DTYPES[dtype]) for column in zip(*grid, strict=True)]


def by_table_and_torch(name: str, args: list[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    with np.errstate(all="ignore"):
        found = np.asarray(ops()[name].numpy(*args))
    return found, (TORCH.get(name) or getattr(torch, name))(*map(torch.from_numpy, args)).numpy()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", FLOAT)
def test_floats(name: str, dtype: str) -> None:
    args = operands(FLOATS, dtype, ops()[name].arity)
    found, want = by_table_and_torch(name, args)
    assert found.dtype == want.dtype
    if name in ("mod", "fmod") and dtype == "f32":
        # Torch's vectorized f32 fmod gives NaN for quotients like 1e30 / 1e-30; fmod is exact, so f64 serves.
        want = by_table_and_torch(name, [a.astype(np.float64) for a in args])[1].astype(np.float32)
    # Two libraries' functions may differ in the last two bits of f32; f64 results here come from the same or better ones.
    np.testing.assert_allclose(found, want, rtol=4e-7 if dtype == "f32" else 1e-14)
    if name not in ("maximum", "minimum"):  # torch leaves the order of the two zeros open there
        zero = (found == 0) & (want == 0)
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("name", INTEGER)
def test_integers(name: str, dtype: str) -> None:
    args = operands(INTS, dtype, ops()[name].arity)
    if name in DIVISIONS:  # torch on a CPU traps for these; what the table gives is tested below
        lowest = np.iinfo(DTYPES[dtype]).min
        defined = (args[1] != 0) & ((args[0] != lowest) | (args[1] != -1))
        args = [a[defined] for a in args]
    found, want = by_table_and_torch(name, args)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", DIVISIONS)
def test_integer_divisions_never_trap(name: str) -> None:
    lowest = np.iinfo(np.int32).min
    with np.errstate(all="ignore"):
        found = ops()[name].numpy(np.array([lowest, 5, 0], np.int32), np.array([-1, 0, 0], np.int32))
    assert found.tolist() == ([lowest, 0, 0] if name in ("floordiv", "truncdiv") else [0, 0, 0])


def test_maximum_and_minimum_order_the_zeros_and_keep_nan() -> None:
    a, b = np.array([0.0, -0.0, nan, 1.0]), np.array([-0.0, 0.0, 1.0, nan])
    assert np.signbit(ops()["maximum"].numpy(a, b)).tolist()[:2] == [False, False]
    assert np.signbit(ops()["minimum"].numpy(a, b)).tolist()[:2] == [True, True]
    assert np.isnan(ops()["maximum"].numpy(a, b)).tolist() == [False, False, True, True]


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_reductions_and_scans_order_the_zeros(name: str, dtype: str) -> None:
    """As their scalar operation does, step by step; NumPy's own reductions keep whichever zero comes first or last."""
    x = np.random.default_rng(0).choice([0.0, -0.0, 1.0, -1.0, nan], size=(300, 6), p=[0.3, 0.4, 0.1, 0.1, 0.1]).astype(DTYPES[dtype])
    with np.errstate(invalid="ignore"):
        steps = list(itertools.accumulate(x.T, ops()[monoids()[name].combine].numpy))
        found = (monoids()[name].accumulate(x, axis=1), monoids()[name].numpy(x, axis=1))
    for got, want in zip(found, (np.stack(steps, axis=1), steps[-1]), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
        assert (np.signbit(got) == np.signbit(want))[got == got].all()


@pytest.mark.parametrize("name", monoids())
@pytest.mark.parametrize("dtype", ["f32", "i32", "i64", "bool"])
def test_identities_change_nothing(name: str, dtype: str) -> None:
    monoid = monoids()[name]
    if (dtype == "bool") != (name in ("any", "all")) and not (dtype == "bool" and name in ("max", "min")):
        return
    values = np.array([True, False]) if dtype == "bool" else np.array([0, 1, -5, 7], DTYPES[dtype])
    unit = np.full_like(values, monoid.identity(dtype))
    np.testing.assert_array_equal(ops()[monoid.combine].numpy(values, unit), values)
