"""Where a rule or a program is evaluated: a few sample positions on every axis.

A sum over an axis is a weighted sum over its samples, with weights that add up to the extent: linear identities, and
``c.sum(k) = c * extent``, hold exactly as they do over all positions, so axes of thousands can be audited on two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy_eq.algebra import Axes


class Abstains(Exception):
    """A layer has nothing to say about a rule or a draw; the message says why."""


@dataclass(frozen=True, slots=True)
class AxisSet(Axes):
    """A set of axes of one space; its facts are plain bools."""

    mask: int
    extents: tuple[int, ...]

    def __and__(self, other: AxisSet) -> AxisSet:
        return AxisSet(self.mask & other.mask, self.extents)

    def __or__(self, other: AxisSet) -> AxisSet:
        return AxisSet(self.mask | other.mask, self.extents)

    def __sub__(self, other: AxisSet) -> AxisSet:
        return AxisSet(self.mask & ~other.mask, self.extents)

    def is_empty(self) -> bool:
        return self.mask == 0

    def not_empty(self) -> bool:
        return self.mask != 0

    def only(self) -> int:
        """The one axis in it; `Abstains` where it has another number of axes, which a scan cannot go along."""
        if self.mask.bit_count() != 1:
            raise Abstains("a scan goes along one axis")
        return bits(self.mask)[0]

    def inhabited(self) -> bool:
        return all(self.extents[a] for a in bits(self.mask))


def bits(mask: int) -> list[int]:
    """The ids of the axes in ``mask``, ascending."""
    return [a for a in range(mask.bit_length()) if mask >> a & 1]


def names(mask: int) -> str:
    """The axes of ``mask`` as text."""
    return ", ".join(f"a{a}" for a in bits(mask))


@dataclass(frozen=True, slots=True)
class Space:
    """Arrays over a space have dim 0 for points of a renamed read (size 1 elsewhere) and dim 1+a for axis a.

    An array's dim is 1 where the value does not depend on the axis, and the number of samples where it does.
    ``key`` seeds every keyed hash; the keyed order of floats knows that of ``numbers``.
    """

    extents: tuple[int, ...]
    samples: tuple[tuple[int, ...], ...]
    key: int = 0
    numbers: frozenset[float] = frozenset()

    @classmethod
    def full(cls, extents: Sequence[int], key: int = 0) -> Space:
        """Every position of every axis."""
        return cls(tuple(extents), tuple(tuple(range(n)) for n in extents), key)

    @classmethod
    def sampled(cls, extents: Sequence[int], count: int = 2, key: int = 0, numbers: frozenset[float] = frozenset()) -> Space:
        """``count`` positions of every axis, the first and the last among them."""
        picks = (range(n) if n <= count else [*range(count - 1), n - 1] for n in extents)
        return cls(tuple(extents), tuple(map(tuple, picks)), key, numbers)

    @property
    def rank(self) -> int:
        return 1 + len(self.extents)

    def along(self, axis: int, values: Sequence[int]) -> Any:
        """An int64 array with ``values`` along ``axis``."""
        shape = [1] * self.rank
        shape[1 + axis] = len(values)
        return np.asarray(values, np.int64).reshape(shape)

    def origin(self) -> Any:
        """A 0 with every dim 1; added to a scalar, it gives it this space's rank."""
        return np.zeros([1] * self.rank, np.int64)

    def positions(self) -> dict[int, Any]:
        """The coordinates of every axis at its samples."""
        return {a: self.along(a, s) for a, s in enumerate(self.samples)}

    def weights(self, axis: int) -> Any:
        """Integers that add up to the extent: one each, and the first sample stands for the rest."""
        n = len(self.samples[axis])
        return self.along(axis, [self.extents[axis] - (n - 1), *[1] * (n - 1)] if n else [])

    def spread(self, array: Any, mask: int) -> Any:
        """``array`` repeated to full size along the axes of ``mask``."""
        shape = list(array.shape)
        for a in bits(mask):
            shape[1 + a] = len(self.samples[a])
        return np.broadcast_to(array, shape)


def mix(x: Any, key: int) -> Any:
    """A keyed hash of non-negative integers below 2^64 (splitmix64's finalizer), as uint64."""
    with np.errstate(over="ignore"):
        z = np.asarray(x).astype(np.uint64) + np.uint64((key * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % (1 << 64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def key_of(text: str, key: int) -> int:
    """A seed for `mix` from a name; the same on every machine (Python's own hash of text is not)."""
    out = key
    for byte in text.encode():
        out = (out * 1099511628211 ^ byte) % (1 << 64)
    return out
