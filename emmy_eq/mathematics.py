"""A rule as a line of mathematics: the algebra's reading for people.

sum[k](a * b) = a * sum[k](b)   where a is free of k
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Self

from emmy_eq import ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Kind, Rule, no_guard

_LEVEL = {"add": 1, "sub": 1, "mul": 2, "div": 2}
_ATOM = 4


@dataclass(frozen=True, slots=True)
class Name:
    """A monoid or dtype that is a variable of the rule."""

    text: str

    def is_float(self) -> str:
        return f"{self.text} is a float"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class PrintedAxes(Axes):
    text: str

    def _join(self, sign: str, other: Self) -> Self:
        parts = (f"({t})" if " " in t else t for t in (self.text, other.text))
        return type(self)(f" {sign} ".join(parts))

    def __and__(self, other: Self) -> Self:
        return self._join("&", other)

    def __or__(self, other: Self) -> Self:
        return self._join("|", other)

    def __sub__(self, other: Self) -> Self:
        return self._join("-", other)

    def is_empty(self) -> str:
        return f"{self.text} is empty"

    def not_empty(self) -> str:
        return f"{self.text} is not empty"

    def inhabited(self) -> str:
        return f"{self.text} has no extent 0"

    def smaller_than(self, other: Self) -> str:
        return f"{self.text} is smaller than {other.text}"

    def disjoint(self, other: Self) -> str:
        return f"{self.text} and {other.text} are disjoint"


@dataclass(frozen=True, slots=True)
class Printed(Val):
    """``level``: how tightly the text's outermost sign binds."""

    text: str
    level: int = _ATOM

    def _at(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"

    def _call(self, head: str, *args: Self) -> Self:
        return type(self)(f"{head}({', '.join(a.text for a in args)})")

    def _op(self, name: str, *others: Self) -> Self:
        sign = ops.ops()[name].symbol
        if name == "neg":
            return type(self)(f"-{self._at(3)}", 3)
        if sign is None or len(others) != 1:
            return self._call(name, self, *others)
        level = _LEVEL.get(name, 0)
        return type(self)(f"{self._at(level)} {sign} {others[0]._at(level + 1)}", level)

    def _reduce(self, monoid: Any, k: Any) -> Self:
        return self._call(f"{monoid}[{k.text}]", self)

    def _scan(self, monoid: Any, k: Any) -> Self:
        return self._call(f"scan {monoid}[{k.text}]", self)

    def _running(self, name: str, v: Self, k: Any) -> Self:
        return self._call(f"running {name}[{k.text}]", self, v)

    def _twist(self, name: str, v: Self, k: Any) -> Self:
        return self._call(f"twist {name}[{k.text}]", self, v)

    def cast(self, dtype: Any) -> Self:
        return self._call(str(dtype), self)

    def like(self, value: float) -> Self:
        return type(self)(str(value))

    def count(self, k: Any) -> Self:
        return type(self)(f"|{k.text}|")

    def stored(self, m: Any) -> Self:
        return self._call(f"stored[{m.text}]", self)

    @property
    def free(self) -> PrintedAxes:
        return PrintedAxes(f"free({self.text})")

    def free_of(self, k: Any) -> str:
        return f"{self.text} is free of {k.text}"

    def summed_over(self, k: Any) -> str:
        return f"it is summed over {k.text}"

    def has_dtype(self, dtype: Any) -> str:
        return f"{self.text} is {dtype}"

    def __lt__(self, other: Any) -> NoReturn:
        raise no_guard(f"a comparison of {self.text}")

    __le__ = __gt__ = __ge__ = __lt__


def _variable(name: str, kind: Kind) -> Any:
    if kind == "axes":
        return PrintedAxes(name)
    return Name(name) if kind in ("monoid", "dtype") else Printed(name)


def show(rule: Rule) -> str:
    """The rule's line."""
    eq = rule.body(*(_variable(name, kind) for name, kind in rule.args))
    where = f"   where {' and '.join(eq.when)}" if eq.when else ""
    return f"{eq.lhs.text} {'=' if eq.both else '->'} {eq.rhs.text}{where}"
