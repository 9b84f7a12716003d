"""L7: mutants of a rule, each wrong in one place as a hurried author might have it; the other layers must refute them.

A mutant that is the same rule in other words, or another true one, is no test of the layers: `emmy_eq.verify.equivalence`
recognises it, and it is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from emmy_eq.rule import Rule
from emmy_eq.verify.check import check_on_draws
from emmy_eq.verify.equivalence import is_same, is_true
from emmy_eq.verify.recorded import Call, Recording, Tree, Variable, as_rule, record

DRAWS = 60  # as many as the rule itself is given
Fate = Literal["killed", "equivalent", "survived"]

_OTHER_OP: Mapping[str, str] = {
    "add": "sub", "sub": "add", "mul": "add", "div": "mul", "maximum": "minimum", "minimum": "maximum", "exp": "expm1", "log": "log1p",
    "sqrt": "rsqrt", "rsqrt": "sqrt", "reciprocal": "neg", "neg": "abs", "abs": "neg", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt",
    "eq": "ne", "ne": "eq", "and": "or", "or": "and", "isinf": "isnan", "isnan": "isinf", "floordiv": "truncdiv", "sigmoid": "tanh",
    "tanh": "sigmoid", "exp2": "exp", "log2": "log", "sin": "cos", "cos": "sin", "fma": "where",
}  # fmt: skip
_OTHER_MONOID: Mapping[str, str] = {"sum": "max", "max": "min", "min": "max", "prod": "sum", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``what`` says how it differs from the rule."""

    what: str
    recording: Recording

    def rule(self, origin: Rule) -> Rule:
        return as_rule(self.recording, origin, f"{origin.name}: {self.what}")


def fates(rule: Rule, seed: int = 0) -> Iterator[tuple[Mutant, Fate]]:
    """What becomes of each mutant.  One that cannot be evaluated, or whose guard never holds, is no rule and is left out."""
    for mutant in mutants(rule):
        changed = mutant.rule(rule)
        if is_same(changed, rule):
            yield mutant, "equivalent"
            continue
        try:
            verdict = check_on_draws(changed, DRAWS, seed)
        except (TypeError, ValueError, IndexError, KeyError):
            continue
        if verdict.draws == 0:
            continue
        if verdict.layer is not None:
            yield mutant, "killed"
        else:
            yield mutant, "equivalent" if is_true(changed, rule) else "survived"


def mutants(rule: Rule) -> Iterator[Mutant]:
    """All of ``rule``'s, each once."""
    origin = record(rule)
    seen = {str(origin)}
    for mutant in _all(rule, origin):
        if str(mutant.recording) not in seen:
            seen.add(str(mutant.recording))
            yield mutant


def _all(rule: Rule, origin: Recording) -> Iterator[Mutant]:
    for n, guard in enumerate(origin.when):
        yield Mutant(f"without {guard}", replace(origin, when=(*origin.when[:n], *origin.when[n + 1 :])))
    change: Callable[[Call], Iterator[tuple[str, Any]]] = _changes(rule)
    for what, tree in _somewhere(origin.rhs, change):
        yield Mutant(f"{what} on the right", replace(origin, rhs=tree))
    for what, tree in _somewhere(origin.lhs, lambda call: _other_op(call)):
        yield Mutant(f"{what} on the left", replace(origin, lhs=tree))


def _somewhere(tree: Any, change: Callable[[Call], Iterator[tuple[str, Any]]]) -> Iterator[tuple[str, Any]]:
    """``tree`` with one call changed."""
    if not isinstance(tree, Call):
        return
    yield from change(tree)
    for n, arg in enumerate(tree.args):
        if n == 0 and tree.method in ("like", "count"):  # it gives the dtype alone
            continue
        for what, other in _somewhere(arg, change):
            yield what, Call(tree.method, (*tree.args[:n], other, *tree.args[n + 1 :]))


def _changes(rule: Rule) -> Callable[[Call], Iterator[tuple[str, Any]]]:
    values = [Variable(name) for name, kind in rule.args if kind == "val"]
    axes = [Variable(name) for name, kind in rule.args if kind == "axes"]

    def change(call: Call) -> Iterator[tuple[str, Any]]:
        yield from _other_op(call)
        yield from _other_operands(call, values)
        yield from _other_reduction(call, axes)
        if call.method == "like":
            receiver, value = call.args
            for other in (value + 1, -value):
                yield f"constant {value} became {other}", Call("like", (receiver, other))

    return change


def _other_op(call: Call) -> Iterator[tuple[str, Tree]]:
    if call.method != "_op":
        return
    receiver, name, *others = call.args
    if name in _OTHER_OP:
        yield f"{name} became {_OTHER_OP[name]}", Call("_op", (receiver, _OTHER_OP[name], *others))
    if not others and name not in ("isinf", "isnan"):
        yield f"{name} dropped", receiver


def _other_operands(call: Call, values: list[Variable]) -> Iterator[tuple[str, Tree]]:
    """Operands of one op swapped, and a variable taken for another."""
    if call.method == "_op" and len(call.args) > 2:
        receiver, name, *others = call.args
        swapped = (others[0], name, receiver) if len(others) == 1 else (receiver, name, *reversed(others))
        yield f"operands of {name} swapped", Call("_op", swapped)
    if call.method in ("free", "like", "count"):
        return
    for n, arg in enumerate(call.args):
        if isinstance(arg, Variable) and arg in values:
            other = values[(values.index(arg) + 1) % len(values)]
            yield f"{arg} became {other}", Call(call.method, (*call.args[:n], other, *call.args[n + 1 :]))


def _other_reduction(call: Call, axes: list[Variable]) -> Iterator[tuple[str, Tree]]:
    """Another monoid, another initial value, other axes."""
    if call.method in ("_reduce", "_scan"):
        receiver, monoid, k = call.args
        if monoid in _OTHER_MONOID:
            yield f"{monoid} became {_OTHER_MONOID[monoid]}", Call(call.method, (receiver, _OTHER_MONOID[monoid], k))
            yield f"{monoid} begins elsewhere", _initialised(call, str(monoid))
        for other in _other_axes(k, axes):
            yield f"axes {k} became {other}", Call(call.method, (receiver, monoid, other))
    if call.method in ("_twist", "_running"):
        *rest, k = call.args
        for other in _other_axes(k, axes):
            yield f"axes {k} became {other}", Call(call.method, (*rest, other))
    if call.method == "count":
        for other in _other_axes(call.args[1], axes):
            yield f"count of {other}", Call("count", (call.args[0], other))


def _initialised(call: Call, monoid: str) -> Tree:
    """The reduction with an initial value that is not the monoid's: 0 for a maximum, 1 for a sum."""
    op, value = {"sum": ("add", 1.0), "prod": ("mul", 2.0), "max": ("maximum", 0.0), "min": ("minimum", 0.0)}.get(monoid, ("xor", True))
    return Call("_op", (call, op, Call("like", (call, value))))


def _other_axes(k: Any, axes: list[Variable]) -> Iterator[Any]:
    yield from (a for a in axes if a != k)
    if isinstance(k, Call):
        yield from (a for a in k.args if isinstance(a, Call))
