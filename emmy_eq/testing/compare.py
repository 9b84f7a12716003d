"""When two arrays count as equal: to the bit, or within what rounding can do in this program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROUNDINGS = 32  # a program of ten steps with sums of some hundred terms loses fewer units in the last place of its largest value
NOISE = 16  # another order of evaluation errs as eager does, within this factor
FLOAT64 = 1e-9  # of float32's noise 1e-7 that of float64 is 1e-9 part of 2^-29, with room for an unlucky order


@dataclass(frozen=True, slots=True)
class Allowed:
    """``noise``: how far the program in its own dtypes is from itself in float64; ``scale``: the largest finite value; ``eps`` of the
    coarsest dtype on the way."""

    noise: float
    scale: float
    eps: float

    @property
    def error(self) -> float:
        return ROUNDINGS * self.eps * self.scale + NOISE * self.noise

    def in_float64(self) -> Allowed:
        """The same program with float64 throughout."""
        return Allowed(self.noise * FLOAT64, self.scale, FLOAT64 / ROUNDINGS)


def allowed(own: Array, wide: Array, eps: float) -> Allowed:
    """From a program's result in its own dtypes, and in float64."""
    if own.dtype.kind in "biu":
        return Allowed(0.0, 0.0, 0.0)
    a, b = own.astype(np.float64), wide.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    return Allowed(float(np.max(np.abs(a - b), initial=0.0)), float(np.max(np.abs(b), initial=1.0)), eps)


def same_bits(got: Array, want: Array) -> str | None:
    """Why not; any NaN is as good as another."""
    if got.dtype.kind in "biu":
        return _first(got, want, got != want)
    a, b = got.astype(np.float64), want.astype(np.float64)
    return _first(got, want, ~((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def same_ends(got: Array, want: Array) -> str | None:
    """Why not; floats are finite in the same places."""
    if got.dtype.kind in "biu":
        return None
    return _first(got, want, np.isfinite(got.astype(np.float64)) != np.isfinite(want.astype(np.float64)))


def same_numbers(got: Array, want: Array, allowed: Allowed) -> str | None:
    """Why not; integers must be equal, infinities and NaN must stand in the same places."""
    if got.dtype.kind in "biu":
        return _first(got, want, got != want)
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.abs(a - b) <= allowed.error
    why = _first(got, want, ~(close | (a == b) | (np.isnan(a) & np.isnan(b))))
    return why and f"{why}; {allowed.error:.1e} is allowed"


def _first(got: Array, want: Array, differ: Array) -> str | None:
    if not np.any(differ):
        return None
    at = tuple(int(n) for n in np.argwhere(differ)[0])
    return f"{got[at]!s} instead of {want[at]!s} at {at}, and {int(np.sum(differ)) - 1} more"
