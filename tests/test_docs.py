"""What the pages show is what the commands print."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _refresh() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in _refresh().pages()])
def test_console_blocks_are_current(page: str) -> None:
    text = (ROOT / page).read_text()
    assert _refresh().refresh(text) == text, "run: python docs/refresh.py"


def test_links_lead_somewhere() -> None:
    broken = []
    for page in _refresh().pages():  # code is not prose: a formula such as sum[k](v) looks like a link
        prose = re.sub(r"^```.*?^```$|^    [^\n]*$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
            if not (page.parent / link).exists():
                broken.append(f"{page.name}: {link}")
    assert broken == []
