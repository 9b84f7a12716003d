"""A rewrite rule: one polymorphic function over `emmy_eq.algebra`, with a name, a rounding class and a phase.

    @rule(rounding=Rounding.REASSOCIATES)
    def factor_out_of_sum(a: Val, b: Val, k: Axes) -> Equation:
        \"\"\"A factor that does not vary along k leaves a sum over k.\"\"\"
        return rewrite((a * b).sum(k), a * b.sum(k), when=a.free_of(k))

The arguments are typed `Val`, `Axes`, `Monoid` or `Dtype`: what the pattern's variables, and a test's draws, range over.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal

from emmy_eq.algebra import Axes, Val
from emmy_eq.errors import InvalidInput
from emmy_eq.ops import FLOATS


class Bool(Val):
    """A `Val` of dtype bool, for annotations."""


class Int(Val):
    """A `Val` of dtype i64, for annotations."""


class Monoid(str):
    """The name of a row of `emmy_eq.ops.monoids`."""


class Dtype(str):
    """The name of a dtype."""

    def is_float(self) -> Any:
        """Guard: any float, the storage types included."""
        return self in FLOATS


Kind = Literal["val", "bool", "int", "axes", "monoid", "dtype"]


class Rounding(IntEnum):
    """What a rule may do to rounding; each class contains the ones before it."""

    EXACT = 0  # bit for bit the same, NaN and -0.0 included
    REASSOCIATES = 1  # the same real number, computed in another order
    CONTRACTS = 2  # fewer roundings: fma, a dropped down-cast
    APPROXIMATES = 3  # bounded error


class Phase(StrEnum):
    """When a rule runs; phases run in this order, round after round."""

    FUSION = "fusion"
    NORMALIZE = "normalize"
    ALGEBRA = "algebra"
    TWIST = "twist"
    CUT = "cut"


_KINDS: dict[Any, Kind] = {Val: "val", Bool: "bool", Int: "int", Axes: "axes", Monoid: "monoid", Dtype: "dtype"}


@dataclass(frozen=True, slots=True)
class Equation:
    """``lhs`` equals ``rhs`` where all of ``when`` hold; ``both``: rewritten in both directions.

    ``keeps``: a part of ``lhs`` that no rule takes apart from then on.
    """

    lhs: Any
    rhs: Any
    when: tuple[Any, ...]
    both: bool
    keeps: Any = None


def rewrite(lhs: Any, rhs: Any, when: Any = (), keeps: Any = None) -> Equation:
    """Where ``lhs`` is found and ``when`` (a guard or a tuple of them) holds, ``rhs`` is equal to it.

    Raises `InvalidInput` where a value or a set of axes stands for a guard.
    """
    return Equation(lhs, rhs, _guarded(when), both=False, keeps=keeps)


def equal(lhs: Any, rhs: Any, when: Any = ()) -> Equation:
    """`rewrite` in both directions."""
    return Equation(lhs, rhs, _guarded(when), both=True)


def guards() -> tuple[str, ...]:
    """What ``when`` is made of, such as ``Val.free_of``: the methods whose docstrings say that they are guards."""
    methods = [(f"{kind.__name__}.{name}", x.__doc__ or "") for kind in (Val, Axes, Dtype) for name, x in vars(kind).items() if callable(x)]
    return tuple(name for name, doc in methods if doc.startswith("Guard:"))


def no_guard(what: str) -> InvalidInput:
    """The error for ``what`` in place of a guard."""
    return InvalidInput(what, f"a guard speaks of axes and dtypes, not of values; guards are: {', '.join(guards())}")


def _guarded(when: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = when if isinstance(when, tuple) else (when,)
    if (wrong := next((g for g in found if isinstance(g, Val | Axes)), None)) is not None:
        raise no_guard(f"when={getattr(wrong, 'text', 'a value')}")
    return found


@dataclass(frozen=True, slots=True)
class Rule:
    """``body`` maps one reading's arguments to an `Equation` in that reading; ``source`` is ``file:line``.

    ``mends``: where the left side is NaN or infinite, the right side may have a value (a division by a product that underflowed).
    """

    name: str
    doc: str
    rounding: Rounding
    phase: Phase
    source: str
    args: tuple[tuple[str, Kind], ...]
    body: Callable[..., Equation]
    mends: bool = False

    def to_egglog(self, dtypes: tuple[str, ...] = ("f32", "f64")) -> list[str]:
        """The rule in egglog's language: one text a direction, and one for each of ``dtypes`` where it has constants of its own."""
        from emmy_eq.pattern import to_egglog

        return to_egglog(self, dtypes)

    def __str__(self) -> str:
        from emmy_eq.mathematics import show

        return show(self)


def rule(
    rounding: Rounding, phase: Phase = Phase.ALGEBRA, name: str | None = None, mends: bool = False
) -> Callable[[Callable[..., Equation]], Rule]:
    """Make a `Rule` of a function; ``name`` and parameters with defaults are for rules that a loop makes from one function.

    Raises `InvalidInput` where an argument's annotation is not a kind that patterns and draws know.
    """

    def decorate(body: Callable[..., Equation]) -> Rule:
        hints = typing.get_type_hints(body)
        names = [p.name for p in inspect.signature(body).parameters.values() if p.default is p.empty]
        if untyped := [n for n in names if hints.get(n) not in _KINDS]:
            kinds = ", ".join(kind.__name__ for kind in _KINDS)
            raise InvalidInput(f"rule {name or body.__name__}", f"{' and '.join(untyped)} must be annotated with one of {kinds}")
        args = tuple((n, _KINDS[hints[n]]) for n in names)
        code = body.__code__
        source = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        return Rule(name or body.__name__, inspect.getdoc(body) or "", rounding, phase, source, args, body, mends)

    return decorate
