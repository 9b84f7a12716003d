"""A stage of the pipeline: an attribute that is computed on first use, once, and timed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

T = TypeVar("T")

# Stages recurse over operands, three frames a level: a sum of a thousand inputs is a chain that deep.
_RECURSION = 10_000


clock: Callable[[], float] = time.perf_counter  # what stages are timed with


class Timed(Protocol):
    """What a stage's owner holds: seconds by stage (each without the stages that it asked for), and the stages in progress; layers
    of a program share both."""

    seconds: dict[str, float]
    _inner: list[float]

    @property
    def watch(self) -> Callable[[str, bool], None] | None:
        """Is told of each stage that begins (True) or ends (False)."""


class stage(Generic[T]):
    """Decorator: the method becomes a read-only attribute; its own seconds go into ``self.seconds[name]``."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> stage[T]: ...
    @overload
    def __get__(self, owner: Timed, kind: type) -> T: ...
    def __get__(self, owner: Timed | None, kind: type) -> T | stage[T]:
        if owner is None:
            return self
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
        if owner.watch is not None:
            owner.watch(self._name, True)
        start = clock()
        owner._inner.append(0.0)
        try:
            value = self._compute(owner)
        finally:
            spent = clock() - start
            owner.seconds[self._name] = owner.seconds.get(self._name, 0.0) + spent - owner._inner.pop()
            if owner._inner:
                owner._inner[-1] += spent
            if owner.watch is not None:
                owner.watch(self._name, False)
        owner.__dict__[self._name] = value  # found before this (non-data) descriptor from now on
        return value
