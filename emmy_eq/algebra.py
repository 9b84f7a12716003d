"""The vocabulary that rules and twists are written in.

A rule's body only calls these methods, so one body has several readings: with `emmy_eq.pattern.Pattern` it is an egglog
rule, with `emmy_eq.named.NamedArray` it computes with NumPy, with `emmy_eq.verify.field.Residue` it computes modulo
primes, with `emmy_eq.mathematics.Printed` it is a line of mathematics.  A reading implements the abstract methods; one of scalar
functions alone (a twist's weight, say) is a `Scalar`.

    a * b, a / b, -a, a.exp(), a.maximum(b)      rows of `emmy_eq.ops`
    c.where(a, b), a.lt(b), a.isnan()
    a.sum(k), a.max(k), a.reduce(m, k)           reductions over an axis set; a.scan(m, k) is inclusive
    s.running(name, v, k)                        a twist's total up to each place along k
    a.twist(name, v, k)                          sum over k of weight(a, key of a over k) * v, in one pass
    a.cast(dtype), a.like(1.0), a.stored(m)      conversion; a constant of a's dtype; a read of a stored over m
    a.free, a.free_of(k), a.has_dtype(d)         facts about a; a guard is a conjunction of facts
    k & j, k | j, k - j, k.disjoint(j)           axis sets
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

S = TypeVar("S", bound="Scalar")
W = TypeVar("W", bound="Scalar")


class Axes(ABC):
    """A set of axes."""

    @abstractmethod
    def __and__(self, other: Self) -> Self: ...

    @abstractmethod
    def __or__(self, other: Self) -> Self: ...

    @abstractmethod
    def __sub__(self, other: Self) -> Self: ...

    @abstractmethod
    def is_empty(self) -> Any:
        """Guard: no axis is in the set."""

    @abstractmethod
    def not_empty(self) -> Any:
        """Guard: some axis is in the set."""

    @abstractmethod
    def inhabited(self) -> Any:
        """Guard: no axis of the set has extent 0."""

    def smaller_than(self, other: Self) -> Any:
        """Guard: fewer points than ``other``; it says when a move is of use, and true is always a safe answer."""
        return True

    def disjoint(self, other: Self) -> Any:
        """Guard: no axis is in both sets."""
        return (self & other).is_empty()


def _unary(name: str) -> Callable[[S], S]:
    return lambda a: a._op(name)


def _binary(name: str) -> Callable[[S, S | float], S]:
    return lambda a, b: a._op(name, a._lift(b))


def _reflected(name: str) -> Callable[[S, float], S]:
    """A number on the left."""
    return lambda a, b: a.like(b)._op(name, a)


class Scalar(ABC):
    """What scalar operations are applied to."""

    @abstractmethod
    def _op(self, name: str, *others: Self) -> Self:
        """Row ``name`` of `emmy_eq.ops` applied to ``self`` and ``others``."""

    @abstractmethod
    def like(self, value: float) -> Self:
        """The constant ``value`` in this value's dtype."""

    def _lift(self, other: Self | float) -> Self:
        return other if isinstance(other, type(self)) else self.like(other)  # type: ignore[arg-type]

    def call(self, name: str, *others: Self | float) -> Self:
        """Any row of `emmy_eq.ops`, by name."""
        return self._op(name, *(self._lift(o) for o in others))

    def where(self, a: W, b: W) -> W:
        """``a`` where this (a bool) holds, else ``b``."""
        return cast(W, self._op("where", cast(Self, a), cast(Self, b)))

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected("div")
    __neg__ = _unary("neg")
    __abs__ = _unary("abs")
    exp = _unary("exp")
    log = _unary("log")
    sqrt = _unary("sqrt")
    rsqrt = _unary("rsqrt")
    reciprocal = _unary("reciprocal")
    maximum = _binary("maximum")
    minimum = _binary("minimum")
    eq = _binary("eq")
    ne = _binary("ne")
    lt = _binary("lt")
    le = _binary("le")
    gt = _binary("gt")
    ge = _binary("ge")


class Val(Scalar):
    """A scalar as a function of its free axes."""

    @abstractmethod
    def _reduce(self, monoid: Any, k: Any) -> Self: ...

    @abstractmethod
    def _scan(self, monoid: Any, k: Any) -> Self: ...

    @abstractmethod
    def _running(self, name: str, v: Self, k: Any) -> Self: ...

    @abstractmethod
    def _twist(self, name: str, v: Self, k: Any) -> Self: ...

    @abstractmethod
    def cast(self, dtype: Any) -> Self:
        """Conversion to ``dtype``."""

    @abstractmethod
    def count(self, k: Any) -> Self:
        """The number of points of the axes ``k``, in this value's dtype."""

    @abstractmethod
    def stored(self, m: Any) -> Self:
        """This value, read from a buffer that holds it over the axes ``m``."""

    @property
    @abstractmethod
    def free(self) -> Any:
        """The axes that this value may depend on."""

    @abstractmethod
    def has_dtype(self, dtype: Any) -> Any:
        """Guard: the dtype is ``dtype``."""

    def free_of(self, k: Any) -> Any:
        """Guard: this value depends on no axis of ``k``."""
        return self.free.disjoint(k)

    def summed_over(self, k: Any) -> Any:
        """Guard: this value, or a product that it is a factor of, is summed over ``k`` somewhere; it says when a move is of use."""
        return True

    def reduce(self, monoid: Any, k: Any) -> Self:
        return self._reduce(monoid, k)

    def sum(self, k: Any) -> Self:
        return self._reduce("sum", k)

    def prod(self, k: Any) -> Self:
        return self._reduce("prod", k)

    def max(self, k: Any) -> Self:
        return self._reduce("max", k)

    def min(self, k: Any) -> Self:
        return self._reduce("min", k)

    def scan(self, monoid: Any, k: Any) -> Self:
        return self._scan(monoid, k)

    def running(self, name: str, v: Self, k: Any) -> Self:
        return self._running(name, v, k)

    def twist(self, name: str, v: Self, k: Any) -> Self:
        return self._twist(name, v, k)
