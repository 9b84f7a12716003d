"""The smallest counterexample to a refuted rule: few axes, few elements, small whole numbers; and a guard that would save it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, cast

import numpy as np

from emmy_eq.rule import Rule
from emmy_eq.verify import floats, operands
from emmy_eq.verify.check import Verdict, check_on_draws
from emmy_eq.verify.draws import Abstains, Arg, Draw, Values, draws
from emmy_eq.verify.operands import Array, Operands
from emmy_eq.verify.recorded import Call, Variable, as_rule, record
from emmy_eq.verify.space import bits, names

TRIES = 300  # small draws before the one that the layers met is taken
GUARD_DRAWS = 24
SIMPLE = (0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan)  # simplest first


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Operands on which the sides differ, in floating point, by the bounds of ``profile``; ``why`` holds both sides."""

    draw: Draw
    values: Operands
    profile: str
    why: str

    def __str__(self) -> str:
        used = 0
        for _, arg in self.draw.args:
            used |= 0 if isinstance(arg, str) else arg
        axes = ", ".join(f"a{a} < {self.draw.extents[a]}" for a in bits(used)) or "none"
        lines = [f"axes {axes}; values are {self.draw.dtype}"]
        for name, arg in self.draw.args:
            if name in self.values:
                lines.append(f"{name}[{names(cast(int, arg))}] = {np.asarray(self.values[name]).tolist()}")
            else:
                lines.append(f"{name} = {arg if isinstance(arg, str) else '{' + names(arg) + '}'}")
        return "\n".join([*lines, self.why])


def told(rule: Rule, verdict: Verdict) -> str:
    """The refutation in words: the smallest counterexample, and what would save the rule."""
    case, guard = smallest(rule, verdict), saving_guard(rule)
    shown = f"shrunk: {case}" if case is not None else "no small operands show it in floating point"
    return f"{shown}\n{'it would hold where ' + guard if guard is not None else 'no guard that was tried would save it'}"


def smallest(rule: Rule, verdict: Verdict) -> Counterexample | None:
    """The smallest that greedy steps reach; None where floating point does not show the fault (only residues do)."""
    found = _first(rule, verdict)
    while found is not None and (smaller := next(_smaller(rule, found), None)) is not None:
        found = smaller
    return found


def saving_guard(rule: Rule) -> str | None:
    """A guard with which no layer refutes the rule any more, in words; a guard that holds too seldom is none."""
    recording = record(rule)
    offers = dict(_guards(rule))
    for chosen in (*combinations(offers, 1), *combinations(offers, 2)):
        guarded = as_rule(replace(recording, when=(*recording.when, *(offers[c] for c in chosen))), rule, rule.name)
        verdict = check_on_draws(guarded, GUARD_DRAWS)
        if verdict.layer is None and verdict.draws == GUARD_DRAWS:
            return " and ".join(chosen)
    values: tuple[Values, ...] = ("never -0.0", "finite", "finite and never 0", "finite and never negative")
    for premise in values:
        if check_on_draws(rule, GUARD_DRAWS, values=premise).holds:
            return f"all values are {premise} (no guard says so)"
    return None


def _guards(rule: Rule) -> Iterator[tuple[str, Call]]:
    values = [name for name, kind in rule.args if kind in ("val", "bool", "int")]
    axes = [name for name, kind in rule.args if kind == "axes"]
    for k in axes:
        for v in values:
            yield f"{v} is free of {k}", Call("is_empty", (Call("__and__", (Call("free", (Variable(v),)), Variable(k))),))
    for j, k in combinations(axes, 2):
        yield f"{j} and {k} are disjoint", Call("is_empty", (Call("__and__", (Variable(j), Variable(k))),))
    for name in (name for name, kind in rule.args if kind == "dtype"):
        yield f"{name} is a float", Call("is_float", (Variable(name),))


def _first(rule: Rule, verdict: Verdict) -> Counterexample | None:
    own = {**operands.profiles(), **operands.of_literals(rule)}
    tries: list[tuple[str, operands.Profile]] = [("ordinary", operands.small)]
    tries += ((name, own[name]) for name in ("ordinary", "special", "named", "beyond") if name in own)
    for name, profile in tries:
        for axes in (1, 2, 3):
            for draw in islice(draws(rule, 0, axes, 2), TRIES // axes):
                if (found := _case(rule, draw, operands.draw_operands(rule, draw, profile), name)) is not None:
                    return found
    if verdict.counterexample is None:
        return None
    for name, profile in own.items():  # the profile whose bounds it breaks
        given = operands.draw_operands(rule, verdict.counterexample, profile)
        if (found := _case(rule, verdict.counterexample, given, name)) is not None:
            return found
    return None


def _case(rule: Rule, draw: Draw, values: Operands, profile: str = "ordinary") -> Counterexample | None:
    """The operands as a counterexample, if they are one."""
    try:
        why = floats.refuted_on(rule, draw, values, profile)
    except (Abstains, TypeError, ValueError):
        return None
    return Counterexample(draw, values, profile, why) if why is not None else None


def _smaller(rule: Rule, case: Counterexample) -> Iterator[Counterexample]:
    """The steps that keep it a counterexample."""
    special = any(not np.all(np.isfinite(a)) for a in _floats(case.values))
    profile = "special" if special else "ordinary" if case.profile == "special" else case.profile
    for draw, values in (*_fewer_axes(case), *_simpler_values(case)):
        if (found := _case(rule, draw, values, profile)) is not None:
            yield found


def _floats(values: Operands) -> list[Array]:
    return [a.astype(np.float64) for a in values.values() if a.dtype.kind not in "biu"]


def _fewer_axes(case: Counterexample) -> Iterator[tuple[Draw, Operands]]:
    draw, masks = case.draw, dict(case.draw.args)
    for name, arg in draw.args:
        if isinstance(arg, str):
            continue
        for at, axis in enumerate(bits(arg)):
            args = _args(masks | {name: arg & ~(1 << axis)})
            values = dict(case.values)
            if name in values and values[name].shape[at]:
                values[name] = np.take(values[name], 0, axis=at)
            elif name in values:
                continue
            yield replace(draw, args=args), values
    for axis, extent in enumerate(draw.extents):
        if extent < 2:
            continue
        extents = (*draw.extents[:axis], extent - 1, *draw.extents[axis + 1 :])
        values = {name: _shorter(a, cast(int, masks[name]), axis) for name, a in case.values.items()}
        yield replace(draw, extents=extents), values


def _args(masks: Mapping[str, Arg]) -> tuple[tuple[str, Arg], ...]:
    return tuple(masks.items())


def _shorter(array: Array, mask: int, axis: int) -> Array:
    if not mask >> axis & 1:
        return array
    at = bits(mask).index(axis)
    return np.take(array, range(array.shape[at] - 1), axis=at)


def _simpler_values(case: Counterexample) -> Iterator[tuple[Draw, Operands]]:
    for name, array in case.values.items():
        for at in np.ndindex(*array.shape):
            for value in _simpler(array[at]):
                changed = np.array(array)
                changed[at] = value
                yield case.draw, {**case.values, name: changed}


def _simpler(value: Any) -> list[Any]:
    if isinstance(value, np.bool_):
        return [False] if value else []
    here = float(value)
    rank = next((n for n, s in enumerate(SIMPLE) if s == here and np.signbit(s) == np.signbit(here)), None)
    if rank is None and np.isnan(here):
        rank = len(SIMPLE) - 1
    return list(SIMPLE[:rank] if np.asarray(value).dtype.kind not in "iu" else [int(s) for s in SIMPLE[: 4 if rank is None else rank]])
