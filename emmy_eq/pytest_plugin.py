"""For pytest: a test that takes ``rule`` runs once for every rule of its module.

    from my_rules import rules
    from emmy_eq.testing import check_rule

    def test_rule_holds(rule):
        assert check_rule(rule).holds

The module's ``rules`` (a sequence, or a function giving one) counts, else every rule that it holds by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "rule" not in metafunc.fixturenames or _has_rule(metafunc):
        return
    found = rules_of(metafunc.module)
    if found:
        metafunc.parametrize("rule", found, ids=[r.name for r in found])


def _has_rule(metafunc: pytest.Metafunc) -> bool:
    """Whether the test gets its ``rule`` from elsewhere: a fixture, or a mark of its own."""
    marks = metafunc.definition.iter_markers("parametrize")
    return bool(metafunc._arg2fixturedefs.get("rule")) or any("rule" in _names(mark.args[0]) for mark in marks if mark.args)


def _names(argument: Any) -> list[str]:
    return [x.strip() for x in argument.split(",")] if isinstance(argument, str) else list(argument)


def rules_of(module: Any) -> list[Any]:
    """The rules that a module stands for; none where it knows none."""
    from emmy_eq.rule import Rule

    offered = getattr(module, "rules", None)
    found = offered() if callable(offered) else offered
    if isinstance(found, list | tuple):
        return [x for x in found if isinstance(x, Rule)]
    return [x for x in vars(module).values() if isinstance(x, Rule)]
