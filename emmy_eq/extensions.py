"""Rules from outside of the library: a user's file, and distributions that offer some under the entry-point group ``emmy_eq.rules``.

A file, as one of the library's, defines ``rules()``; a file without it means every `Rule` that it defines.  What a random draw refutes is
refused here: a wrong rule is a wrong model.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import indent
from typing import Any

from emmy_eq.algebra import Scalar, Val
from emmy_eq.errors import InvalidInput, InvalidSource
from emmy_eq.mathematics import show
from emmy_eq.rule import Rule
from emmy_eq.rules import library

GROUP = "emmy_eq.rules"
DRAWS = 40  # refutes every wrong rule of the tests within a few; `emmy-eq rules check` draws more


def from_file(path: str) -> tuple[Rule, ...]:
    """The rules of a Python file, unchecked."""
    if not Path(path).is_file():
        raise InvalidInput(f"rule file {path}", "there is no such file")
    try:
        scope = runpy.run_path(path)
    except InvalidInput as error:
        raise InvalidInput(f"rule file {path}", error.reason) from error
    except SyntaxError as error:
        raise InvalidSource(f"rule file {error.filename}:{{}}", error) from error
    except Exception as error:
        raise InvalidInput(f"rule file {path}", f"running it raised {type(error).__name__}: {error}") from error
    if callable(scope.get("rules")):
        return _valid(f"rule file {path}", _called(f"rule file {path}", scope["rules"]))
    return _valid(f"rule file {path}", [x for x in scope.values() if isinstance(x, Rule)])


@cache
def installed() -> tuple[Rule, ...]:
    """The rules of installed distributions, each tested once a process."""
    found: list[Rule] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        where = f"entry point {entry.name} of {GROUP}"
        try:
            function = entry.load()
        except Exception as error:
            raise InvalidInput(where, f"loading {entry.value} raised {type(error).__name__}: {error}") from error
        found += checked(_valid(where, _called(where, function)))
    return _valid(f"entry points of {GROUP}", found) if found else ()


def checked(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """``rules``, if no draw refutes one; raises `InvalidInput` with the counterexample.  A rule is tested once a process."""
    for rule in rules:
        if not isinstance(rule, Rule):
            raise InvalidInput("rules", f"{rule!r} is no rule; a rule is a function under @rule(...)")
        _read(rule)
        why = _refuted(rule)
        if why is not None:
            raise InvalidInput(f"rule {rule.name} ({rule.source})", why)
    return tuple(rules)


@cache
def _refuted(rule: Rule) -> str | None:
    from emmy_eq.verify.check import check_on_draws
    from emmy_eq.verify.shrink import told

    verdict = check_on_draws(rule, DRAWS)
    if verdict.holds:
        return None
    if not verdict.layer:
        return "its guard never held, so nothing was tested"
    return f"it is not true: {verdict.why}\n{indent(told(rule, verdict), '    ')}"


def _called(where: str, function: Any) -> Sequence[Any]:
    try:
        return tuple(function())
    except Exception as error:
        raise InvalidInput(where, f"calling rules() raised {type(error).__name__}: {error}") from error


def _valid(where: str, found: Sequence[Any]) -> tuple[Rule, ...]:
    if not found:
        raise InvalidInput(where, "it defines no rule; a rule is a function under @rule(...)")
    names = set(library())
    for x in found:
        if not isinstance(x, Rule):
            raise InvalidInput(where, f"{x!r} is no rule; a rule is a function under @rule(...)")
        if x.name in names:
            raise InvalidInput(where, f"there is a rule {x.name!r} already; give this one another name")
        _read(x)
        names.add(x.name)
    return tuple(found)


def _read(rule: Rule) -> None:
    """Raises `InvalidInput` where the rule's function fails in the cheapest reading: a misspelled operation is no fault of ours."""
    where = f"rule {rule.name} ({rule.source})"
    try:
        show(rule)
    except InvalidInput as error:
        raise InvalidInput(where, error.reason) from error
    except Exception as error:
        if isinstance(error, AttributeError) and isinstance(error.obj, Val):
            legal = ", ".join(name for name, x in {**vars(Scalar), **vars(Val)}.items() if callable(x) and not name.startswith("_"))
            raise InvalidInput(where, f"a value has no method {error.name!r}; its methods are {legal}") from error
        returns = "its function returns rewrite(lhs, rhs) or equal(lhs, rhs), made of what emmy_eq.algebra defines"
        raise InvalidInput(where, f"reading it raised {type(error).__name__}: {error}; {returns}") from error
