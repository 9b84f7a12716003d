"""Hostile numbers: what the operands of a rule are filled with, a profile for each way that floats go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from emmy_eq.ops import DTYPES
from emmy_eq.rule import Rule
from emmy_eq.verify.draws import Draw, Values, dtype_of
from emmy_eq.verify.recorded import calls, record
from emmy_eq.verify.space import bits

Array = np.ndarray[Any, Any]
Operands = Mapping[str, Array]  # of the arguments that are values, each over its own axes ascending
Profile = Callable[[np.random.Generator, str, tuple[int, ...]], Array]

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 1.0, 2.0**-149)


def profiles() -> Mapping[str, Profile]:
    """By name.  What is finite here stays so under a product of three, so that a side which overflows does so by its own doing;
    ``beyond`` is for what does not."""
    moderate = {"ordinary": ordinary, "offset": offset, "magnitudes": magnitudes, "subnormal": subnormal}
    return {**moderate, "beyond": beyond, "special": special}


def of_draw(rule: Rule, draw: Draw) -> Mapping[str, Profile]:
    """Those for one draw: ordinary, beyond, special, what the rule names, and the others in turn."""
    names = ("offset", "magnitudes", "subnormal")
    found = profiles()
    return {**{name: found[name] for name in ("ordinary", names[draw.key % 3], "beyond", "special")}, **of_literals(rule)}


@lru_cache(maxsize=256)
def of_literals(rule: Rule) -> Mapping[str, Profile]:
    """A rule may be wrong only at a number that it names: half of the numbers are those and their neighbours.

    There is no such profile for a rule all of whose numbers are drawn as ordinary ones.
    """
    numbers = {float(c.args[1]) for c in calls(record(rule), "like")}
    rare = np.array(sorted(c for c in numbers if np.isfinite(c) and (abs(c) > 2 or c % 1)))
    if not rare.size:
        return {}

    def named(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not in the dtype's range
            own = rare.astype(DTYPES[dtype])
            step = 1 if dtype == "i64" else np.spacing(own)
            near = np.concatenate([own, own, own - step, own + step]).astype(np.float64)
        near = near[np.isfinite(near)]
        return np.where(rng.random(shape) < 0.5, rng.choice(near if near.size else rare, shape), ordinary(rng, dtype, shape))

    return {"named": named}


def ordinary(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Numbers of order 1; half of them small and whole, so that there are ties and zeros."""
    return np.where(rng.random(shape) < 0.5, rng.normal(size=shape), rng.integers(-2, 3, shape))


def small(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Small whole numbers."""
    return rng.integers(-2, 3, shape).astype(np.float64)


def integers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """What integer arguments are under every profile but one."""
    return np.asarray(rng.integers(-4, 5, shape))


def offset(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """A common offset far larger than the differences: what a difference of squares or an unshifted exponential loses.

    The offsets have one sign.  Any reassociation may lose a sum of terms that happen to cancel; none may lose a difference.
    """
    return np.asarray(rng.normal(size=shape) + 2.0 ** (_reach(dtype) * 0.7))


def magnitudes(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Magnitudes spread evenly over the exponents, both signs."""
    reach = _reach(dtype)
    return np.asarray(rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.uniform(-reach, reach, shape))


def subnormal(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Half of the numbers below the least normal one."""
    tiny = {"f16": 1e-6, "f64": 1e-310}.get(dtype, 1e-39)
    return np.where(rng.random(shape) < 0.5, rng.normal(size=shape) * tiny, rng.integers(-2, 3, shape))


def beyond(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Half are ordinary.  Exponentials of the others leave the range, or products of two, or sums of two."""
    top = {"f16": 15.0, "f64": 1023.0}.get(dtype, 127.0)  # 2^top is finite and 2^(top+1) is not
    bands = [(np.log2(top) - 0.5, np.log2(top) + 2), (top / 2, top), (top - 0.5, top)]
    lowest, highest = np.array(bands)[rng.integers(3, size=shape)].T
    large = rng.choice([-1.0, 1.0]) * 2.0 ** rng.uniform(lowest.T, highest.T)
    return np.where(rng.random(shape) < 0.5, large, ordinary(rng, dtype, shape))


def special(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Two of three are infinite, NaN, signed zeros, or at the ends of the range."""
    return np.where(rng.random(shape) < 0.7, rng.choice(SPECIAL, shape), ordinary(rng, dtype, shape))


def one_special(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Ordinary; every other time infinite or NaN at one point, and sometimes everywhere, as a fully masked row is."""
    array, chance = np.array(ordinary(rng, dtype, shape)), rng.random()
    if array.size and chance < 0.6:
        where = slice(None) if chance < 0.15 else rng.integers(array.size)
        array.flat[where] = rng.choice([np.inf, -np.inf, np.nan])
    return array


def whole(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Small whole numbers and some -inf, as masks are."""
    return np.where(rng.random(shape) < 0.15, -np.inf, rng.integers(-3, 4, shape))


def _reach(dtype: str) -> int:
    return {"f16": 5, "bf16": 20}.get(dtype, 20)


def draw_operands(rule: Rule, draw: Draw, profile: Profile) -> Operands:
    """Every value argument's array in its dtype."""
    rng = np.random.default_rng([draw.key, *profile.__name__.encode()])
    out: dict[str, Array] = {}
    for (name, kind), (_, arg) in zip(rule.args, draw.args, strict=True):
        if kind in ("axes", "monoid", "dtype"):
            continue
        dtype, shape = dtype_of(kind, draw), tuple(draw.extents[a] for a in bits(int(arg)))
        if dtype == "bool":
            out[name] = np.asarray(rng.random(shape) < 0.5)
        elif dtype == "i64":
            own = profile if profile.__name__ == "named" else integers
            out[name] = own(rng, dtype, shape).astype(np.int64)
        else:
            with np.errstate(over="ignore"):
                made = profile(rng, dtype, shape).astype(DTYPES[dtype])  # where what is tiny may become -0.0
                out[name] = admitted(made, draw.values).astype(DTYPES[dtype])
    return out


def admitted(array: Array, values: Values) -> Array:
    """``array`` with the elements replaced that ``values`` excludes."""
    if values == "any":
        return array
    if values == "never -0.0":
        return np.where((array == 0) & np.signbit(array), 0.0, array)
    array = np.where(np.isfinite(array), array, 1.0)
    if values == "finite and never negative":
        return np.abs(array)
    return np.where(array == 0, 1.0, array) if values == "finite and never 0" else array
