"""Shared by all tests: hypothesis without chance, golden files, and a printed reason where there is no GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent

# Schedules that were tuned on this machine must not change what the tests compile, in this process or those it starts.
os.environ["EMMY_EQ_STORE"] = ""

# One sequence of examples on every machine.  `--hypothesis-profile=explore` draws new ones and prints the seed.
hypothesis.settings.register_profile("repeat", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile("repeat")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing with them")


@cache
def missing_gpu() -> str | None:
    """Why tests under tests/gpu cannot run here, or None."""
    import torch

    return None if torch.cuda.is_available() else f"no CUDA device (torch {torch.__version__})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE / "gpu" not in item.path.parents:
            continue
        if (reason := missing_gpu()) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)`` compares ``text`` with tests/golden/``name``; `--update-golden` writes it."""

    def check(name: str, text: str) -> None:
        path = HERE / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return
        assert path.is_file(), f"no golden file {name}; write it with --update-golden"
        assert text == path.read_text(), f"{name} differs; if that is meant, run with --update-golden"

    return check
