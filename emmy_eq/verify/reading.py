"""What the readings over the axes of a draw share: facts, and folds as steps of scalar operations along one axis at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from typing import Any, Self, cast

from emmy_eq import ops
from emmy_eq.algebra import Val
from emmy_eq.verify.space import AxisSet, bits


class Reading(Val):
    """A value of a ``dtype``."""

    dtype: str

    def count(self, k: AxisSet) -> Self:
        return self.like(prod(k.extents[a] for a in bits(k.mask)))

    def stored(self, m: AxisSet) -> Self:
        return self

    def has_dtype(self, dtype: Any) -> bool:
        return bool(self.dtype == dtype)

    def result_dtype(self, name: str, others: Sequence[Self]) -> str:
        """Of row ``name`` applied to this value and ``others``."""
        return ops.ops()[name].gives((self, *others)[-1].dtype)


class Stepwise(Reading):
    """A dataclass whose ``mask`` holds the axes that it may depend on; folds take one position of an axis after the other."""

    mask: int

    @abstractmethod
    def _places(self, axis: int) -> list[Self]:
        """The value at each position of ``axis``."""

    @abstractmethod
    def _joined(self, steps: Sequence[Self], axis: int) -> Self:
        """Inverse of `_places`; of no steps this value, which has no position there."""

    @abstractmethod
    def _identity(self, monoid: str, axis: int) -> Self:
        """What a fold of no positions gives."""

    def _weighed(self, axis: int) -> Self:
        """The value, each position times how many it stands for."""
        return self

    def _steps(self, monoid: str, axis: int) -> list[Self]:
        """What a fold along ``axis`` holds after each position."""
        combine = ops.monoids()[monoid].combine
        places = (self._weighed(axis) if combine == "add" else self)._places(axis)
        return list(accumulate(places, lambda a, b: a._op(combine, b)))

    def _reduce(self, monoid: Any, k: AxisSet) -> Self:
        out = self
        for axis in bits(k.mask):
            steps = out._steps(monoid, axis)
            out = replace(steps[-1] if steps else out._identity(monoid, axis), mask=out.mask & ~(1 << axis))  # type: ignore[type-var]
        return out

    def _scan(self, monoid: Any, k: AxisSet) -> Self:
        axis = k.only()
        return replace(self._joined(self._steps(monoid, axis), axis), mask=self.mask | k.mask)  # type: ignore[type-var]

    def _running(self, name: str, v: Self, k: AxisSet) -> Self:
        axis = k.only()
        totals = ops.twists()[name].totals(zip(self._places(axis), v._weighed(axis)._places(axis), strict=True))
        if not totals:
            return self * v
        return replace(v._joined(totals, axis), mask=self.mask | v.mask | k.mask)  # type: ignore[type-var]

    def _twist(self, name: str, v: Self, k: AxisSet) -> Self:
        row = ops.twists()[name]
        centre = row.centre(self.reduce(row.key, k), self.count(k))
        return cast(Self, (row.weight(self, centre) * v.cast(self.dtype)).sum(k))
