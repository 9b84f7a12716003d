"""A rule as data: the algebra's reading in which every call is recorded, to be replayed in any other reading.

A certificate's key is the text of what was recorded, and a mutant is a recording with one call changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from emmy_eq import ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.errors import Unsupported
from emmy_eq.rule import Equation, Rule


@dataclass(frozen=True, slots=True)
class Variable:
    """An argument of the rule."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """``args[0]`` is the receiver; other arguments are trees, names and numbers."""

    method: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"({self.method} {' '.join(map(str, self.args))})"


Tree = Variable | Call


@dataclass(frozen=True, slots=True)
class Recording:
    """A rule's equation as trees."""

    lhs: Tree
    rhs: Tree
    when: tuple[Any, ...]
    both: bool

    def __str__(self) -> str:
        return f"{self.lhs} {'=' if self.both else '->'} {self.rhs} when {' '.join(map(str, self.when))}"

    def body(self, names: tuple[str, ...], *args: Any) -> Equation:
        """The body of a rule with arguments called ``names``."""
        env = dict(zip(names, args, strict=True))
        return Equation(replay(self.lhs, env), replay(self.rhs, env), tuple(replay(g, env) for g in self.when), self.both)


@dataclass(frozen=True, slots=True)
class RecordedName:
    """A monoid or dtype that is a variable; any method of it is recorded."""

    tree: Tree

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)
        return lambda *args: _call(method, self, *args)


def _call(method: str, *args: Any) -> Call:
    return Call(method, tuple(getattr(a, "tree", a) for a in args))


def _made(method: str) -> Callable[..., Any]:
    """A method that gives another of its receiver's kind."""
    return lambda receiver, *args: type(receiver)(_call(method, receiver, *args))


def _fact(method: str) -> Callable[..., Any]:
    return lambda receiver, *args: _call(method, receiver, *args)


@dataclass(frozen=True, slots=True)
class RecordedAxes(Axes):
    tree: Tree

    __and__, __or__, __sub__ = map(_made, ("__and__", "__or__", "__sub__"))
    is_empty, not_empty, inhabited, smaller_than = map(_fact, ("is_empty", "not_empty", "inhabited", "smaller_than"))


@dataclass(frozen=True, slots=True)
class Recorded(Val):
    tree: Tree

    _op, _reduce, _scan, _running, _twist = map(_made, ("_op", "_reduce", "_scan", "_running", "_twist"))
    cast, like, count, stored = map(_made, ("cast", "like", "count", "stored"))
    has_dtype, summed_over = map(_fact, ("has_dtype", "summed_over"))

    @property
    def free(self) -> RecordedAxes:
        return RecordedAxes(_call("free", self))


@lru_cache(maxsize=256)
def record(rule: Rule) -> Recording:
    """The rule's equation over its own arguments as variables."""
    make = {"axes": RecordedAxes, "monoid": RecordedName, "dtype": RecordedName}
    eq = rule.body(*(make.get(kind, Recorded)(Variable(name)) for name, kind in rule.args))
    return Recording(eq.lhs.tree, eq.rhs.tree, eq.when, eq.both)


def as_rule(recording: Recording, like: Rule, name: str) -> Rule:
    """The recording as a rule with the arguments, rounding and phase of ``like``."""
    return dataclasses.replace(like, name=name, body=partial(recording.body, tuple(n for n, _ in like.args)))


def replay(tree: Any, env: Mapping[str, Any]) -> Any:
    """The recorded calls, made on what ``env`` gives the variables."""
    if isinstance(tree, Variable):
        return env[tree.name]
    if not isinstance(tree, Call):
        return tree
    receiver, *args = (replay(a, env) for a in tree.args)
    found = getattr(receiver, tree.method)
    return found if tree.method == "free" else found(*args)


def subtrees(tree: Any) -> Iterator[Call]:
    """The calls in ``tree``, outermost first, shared ones each time."""
    if isinstance(tree, Call):
        yield tree
        for a in tree.args:
            yield from subtrees(a)


def calls(recording: Recording, *methods: str) -> Iterator[Call]:
    """The calls of those methods on either side."""
    return (c for side in (recording.lhs, recording.rhs) for c in subtrees(side) if c.method in methods)


def key(rule: Rule) -> str:
    """What a certificate vouches for: both sides, the guard, the rounding class, the kinds of the arguments, and the twists' laws."""
    recording = record(rule)
    laws = (_law(name) for name in sorted({str(c.args[1]) for c in calls(recording, "_twist", "_running")}))
    text = "\n".join([str(recording), rule.rounding.name, str(rule.args), *laws, *(["mends"] if rule.mends else [])])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _law(name: str) -> str:
    """A twist's row with its functions recorded."""
    row = ops.twists()[name]
    return " ".join(f"{f.name}={_cell(getattr(row, f.name))}" for f in dataclasses.fields(row))


def _cell(value: Any) -> str:
    if not callable(value):
        return str(value)
    args = [Recorded(Variable(p)) for p in inspect.signature(value).parameters]
    try:
        return str(getattr(value(*args), "tree", None))
    except Unsupported as error:
        return str(error)
