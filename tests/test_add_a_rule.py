"""docs/add_a_rule.md: its listings are the files beside it, and they run; its commands are run by tests/test_docs.py."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emmy_eq import catalogue
from emmy_eq.cli import main
from emmy_eq.extensions import from_file
from emmy_eq.rule import Rounding, guards

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "add_a_rule.md").read_text()
LISTINGS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["exponentials.py", "test_exponentials.py"])
def test_listings_are_the_files(name: str) -> None:
    assert (ROOT / "docs" / "examples" / name).read_text() in LISTINGS


def test_sessions_print_what_they_show() -> None:
    (rule,) = from_file(str(ROOT / "docs" / "examples" / "exponentials.py"))
    sessions = [text for text in LISTINGS if text.startswith(">>>")]
    assert sessions
    for text in sessions:
        test = doctest.DocTestParser().get_doctest(text, {"exp_of_sum": rule}, "add_a_rule", None, None)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_the_page_names_every_class_and_guard() -> None:
    assert [r.name for r in Rounding if f"| `{r.name}`" not in PAGE] == []
    assert [g for g in guards() if f".{g.split('.')[1]}(" not in PAGE] == []


def test_the_rule_is_certified(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"^```sh\nemmy-eq (.*)\n```$", PAGE, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    assert "exp_of_sum" in capsys.readouterr().out


def test_the_rules_own_tests_pass() -> None:
    """In a process of its own, as the page says, with the plug-in."""
    (command,) = re.findall(r"^```sh\npython (-m pytest .*)\n```$", PAGE, re.MULTILINE)
    run = [sys.executable, *command.split(), "-q", "-p", "emmy_eq.pytest_plugin"]
    done = subprocess.run(run, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_catalogue_is_current() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == catalogue.page(), "run: emmy-eq rules catalogue > docs/rules.md"
