"""A rule as an egglog rule: the algebra's reading as patterns.

The constructors' names and columns are those of `emmy_eq.signature`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from emmy_eq import signature, terms
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Kind, Rule


@dataclass(slots=True)
class _Premises:
    """What a body asks of the e-graph beside the pattern itself; ``dtype`` is what its constants are made in."""

    dtype: str
    facts: list[str] = field(default_factory=list)
    has_constants: bool = False

    def free(self, of: str) -> str:
        """A variable that holds the free axes of the pattern ``of``."""
        for fact in self.facts:
            if fact.startswith("(= free") and fact.endswith(f" (free {of}))"):
                return fact.split()[1]
        name = f"free{len(self.facts)}"
        self.facts.append(f"(= {name} (free {of}))")
        return name

    def require_dtype(self, of: str) -> None:
        self.has_constants = True
        fact = f"(= (dtype {of}) {signature.code(self.dtype)})"
        if fact not in self.facts:
            self.facts.append(fact)


@dataclass(frozen=True, slots=True)
class AxesPattern(Axes):
    text: str

    def __and__(self, other: Self) -> Self:
        return type(self)(f"(& {self.text} {other.text})")

    def __or__(self, other: Self) -> Self:
        return type(self)(f"(| {self.text} {other.text})")

    def __sub__(self, other: Self) -> Self:
        return type(self)(f"(& {self.text} (not-i64 {other.text}))")

    def is_empty(self) -> str:
        return f"(= {self.text} 0)"

    def not_empty(self) -> str:
        return f"(!= {self.text} 0)"

    def smaller_than(self, other: Self) -> str:
        return f"(Smaller {self.text} {other.text})"

    def inhabited(self) -> str:
        return f"(= (& {self.text} (empty-axes)) 0)"


@dataclass(frozen=True, slots=True)
class NamePattern:
    text: str

    def is_float(self) -> str:
        return f"(!= (& {self.text} {signature.FLOATS}) 0)"


@dataclass(frozen=True, slots=True)
class Pattern(Val):
    text: str
    premises: _Premises

    def _new(self, text: str) -> Self:
        return type(self)(text, self.premises)

    def _op(self, name: str, *others: Self) -> Self:
        return self._new(f"({signature.constructor(name)} {' '.join(x.text for x in (self, *others))})")

    def _reduce(self, monoid: Any, k: Any) -> Self:
        return self._new(f"(Reduce {_name(monoid)} {self.text} {k.text})")

    def _scan(self, monoid: Any, k: Any) -> Self:
        return self._new(f"(Scan {_name(monoid)} {self.text} {k.text})")

    def _running(self, name: str, v: Self, k: Any) -> Self:
        return self._new(f"(Running {_name(name)} {self.text} {v.text} {k.text})")

    def _twist(self, name: str, v: Self, k: Any) -> Self:
        return self._new(f"(Twist {_name(name)} {self.text} {v.text} {k.text})")

    def cast(self, dtype: Any) -> Self:
        return self._new(f"(Cast {dtype.text if isinstance(dtype, NamePattern) else signature.code(dtype)} {self.text})")

    def like(self, value: float) -> Self:
        self.premises.require_dtype(self.text)
        return self._new(signature.literal(self.premises.dtype, terms.to_bits(self.premises.dtype, value)))

    def count(self, k: Any) -> Self:
        self.premises.require_dtype(self.text)
        return self._new(f"(Count {signature.code(self.premises.dtype)} {k.text})")

    def stored(self, m: Any) -> Self:
        return self._new(f"(Read {self.text} {m.text})")

    def summed_over(self, k: Any) -> str:
        return f"(Summand {self.text} {k.text})"

    @property
    def free(self) -> AxesPattern:
        return AxesPattern(self.premises.free(self.text))

    def has_dtype(self, dtype: Any) -> str:
        return f"(= (dtype {self.text}) {dtype.text if isinstance(dtype, NamePattern) else signature.code(dtype)})"


def _name(x: Any) -> str:
    return x.text if isinstance(x, NamePattern) else f'"{x}"'


_TYPED: Mapping[Kind, str] = {"bool": "bool", "int": "i64"}  # what such a variable matches; any other value may have any dtype


def _variable(name: str, kind: Kind, premises: _Premises) -> Any:
    if kind == "axes":
        return AxesPattern(name)
    if kind in _TYPED:
        premises.facts.append(f"(= (dtype {name}) {signature.code(_TYPED[kind])})")
    return NamePattern(name) if kind in ("monoid", "dtype") else Pattern(name, premises)


def to_egglog(rule: Rule, dtypes: tuple[str, ...]) -> list[str]:
    """One egglog rule for each direction, and for each dtype that the body's constants may have."""
    texts: list[str] = []
    for dtype in dtypes:
        premises = _Premises(dtype)
        eq = rule.body(*(_variable(name, kind, premises) for name, kind in rule.args))
        directions = [(eq.lhs, eq.rhs, rule.name), (eq.rhs, eq.lhs, f"{rule.name}.back")]
        for lhs, rhs, name in directions[: 2 if eq.both else 1]:
            suffix = f".{dtype}" if premises.has_constants else ""
            facts = " ".join([f"(= root {lhs.text})", *premises.facts, *eq.when])
            kept = f" (subsume {eq.keeps.text})" if eq.keeps is not None else ""
            texts.append(f'(rule ({facts}) ((union root {rhs.text}){kept}) :ruleset {rule.phase} :name "{name}{suffix}")')
        if not premises.has_constants:
            break
    return texts
