"""``python docs/refresh.py``: runs every ``$ emmy-eq ...`` in the console blocks of README.md and docs/, and writes its output below.

A command may end in ``| head -N``.  tests/test_docs.py fails where a page shows anything else than what the command prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from emmy_eq import catalogue
from emmy_eq.cli import main

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"\s*\|\s*head -(\d+)$")


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refresh(text: str) -> str:
    """``text`` with the output of its commands as of now."""
    return _BLOCK.sub(lambda block: f"```console\n{_session(block[1])}```", text)


def _session(block: str) -> str:
    commands = [line for line in _continue(block.split("\n")) if line.startswith("$ ")]
    return "".join(f"{command}\n{_output(command)}" for command in commands)


def _continue(lines: list[str]) -> list[str]:
    """A line that ends in a backslash goes on in the next."""
    out: list[str] = []
    for line in lines:
        if out and out[-1].endswith("\\"):
            out[-1] += "\n" + line
        else:
            out.append(line)
    return out


def _output(command: str) -> str:
    line = command.removeprefix("$ ")
    head = _HEAD.search(line)
    words = shlex.split(_HEAD.sub("", line))
    if words[0] != "emmy-eq":
        raise ValueError(f"only emmy-eq commands can be refreshed, not {line!r}")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(words[1:])
    if code != 0:
        raise RuntimeError(f"{line} ended with exit code {code}")
    lines = out.getvalue().splitlines(keepends=True)
    return "".join(lines[: int(head[1])] if head else lines)


if __name__ == "__main__":
    for page in pages():
        old = page.read_text()
        new = refresh(old)
        if new != old:
            page.write_text(new)
            print(f"wrote {page.relative_to(ROOT)}", file=sys.stderr)
    (ROOT / "docs" / "rules.md").write_text(catalogue.page())
