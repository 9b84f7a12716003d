"""What the pages show is what the commands print."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from emmy_eq.cli import main

ROOT = Path(__file__).parent.parent


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in _script("refresh").pages()])
def test_console_blocks_are_current(page: str) -> None:
    text = (ROOT / page).read_text()
    assert _script("refresh").refresh(text) == text, "run: python docs/refresh.py"


MODEL = "import torch\nblock = torch.nn.Linear(8, 8)\nexample_inputs = (torch.randn(2, 8),)\n"
LONG = ("emmy-eq rules check", "emmy-eq fuzz --minutes 1")  # minutes; tests/test_rules.py and tests/test_fuzz.py have parts of them
NEEDS_GPU = ("--device cuda", "emmy-eq tune", "targets calibrate")


def _readme_commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    code = re.search(r"^    CODE='(.*)'$", text, re.MULTILINE)
    assert code is not None
    lines = re.findall(r"^    (emmy-eq [^\n]*?)(?:\s+#[^\n]*)?$", text, re.MULTILINE)
    return [line.replace("$CODE", code[1]) for line in lines if line not in LONG and not any(x in line for x in NEEDS_GPU)]


@pytest.mark.parametrize("command", _readme_commands())
def test_commands_of_the_readme_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("EMMY_EQ_STORE", str(tmp_path / "t.sqlite"))
    assert main(shlex.split(command.replace("model.py", str(tmp_path / "model.py")))[1:]) == 0
    assert capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    broken = []
    for page in _script("refresh").pages():  # code is not prose: a formula such as sum[k](v) looks like a link
        prose = re.sub(r"^```.*?^```$|^    [^\n]*$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
            if not (page.parent / link).exists():
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_the_reading_order_has_every_module_once_with_its_purpose() -> None:
    reading = _script("reading")
    listed = [m for modules in reading.parts().values() for m in modules]
    assert sorted(listed) == sorted(m for package in reading.PACKAGES for m in reading._modules(f"{package}/"))
    assert [m for m in listed if not reading.purpose(m)] == []
