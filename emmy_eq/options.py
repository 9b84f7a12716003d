"""What the options of the command line name: a program, where it is cut, schedule rows, rule files, the timing store."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emmy_eq import progress
from emmy_eq.errors import InvalidInput, InvalidSource

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled
    from emmy_eq.rule import Rule
    from emmy_eq.torch_ir import Program


EXAMPLE = "WORK=t256 TILE=i0:t256 RASTER=row"


def compiled_from(options: argparse.Namespace) -> Compiled:
    """The program that the options name, captured when first asked for."""
    if (options.code is None) == (options.program is None):
        raise InvalidInput("the program", "give either -c CODE or FILE.py:NAME")
    if options.code is not None and options.inputs is not None:
        raise InvalidInput("--inputs", "it is for FILE.py:NAME; -c CODE makes its own tensors")
    if options.program is not None and not Path(options.program.rpartition(":")[0]).is_file():
        raise InvalidInput(options.program, f"it is not FILE.py:NAME with a file that exists{_definitions(Path(options.program))}")
    place, schedule = parse_place(options.place), parse_schedule(options.schedule)
    from emmy_eq.extensions import checked
    from emmy_eq.pipeline import Compiled, Options
    from emmy_eq.torch_ir import capture, capture_code

    mine = checked(rules_of(options.rules))
    settings = Options(options.target, options.accuracy, place, schedule, mine, options.search_seconds)

    def source() -> Program:
        return capture_code(options.code) if options.code is not None else capture(*load(options.program, options.inputs))

    made = Compiled(source, settings)
    made.target  # noqa: B018 (an unknown one is said before torch is imported, which takes seconds)
    made.watch = progress.watch
    return made


def parse_place(text: str) -> dict[str, str] | str:
    """``auto``, ``fuse`` and ``cut`` stay; ``a=fuse,b=cut`` becomes a mapping."""
    if "=" not in text:
        if text not in ("auto", "fuse", "cut"):
            raise InvalidInput(f"--place {text}", "it is auto, fuse, cut, or SEAM=fuse|cut with commas between")
        return text
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not part.endswith(("=fuse", "=cut")):
            raise InvalidInput(f"--place {text}", f"{part!r} is not SEAM=fuse or SEAM=cut")
    pins = {seam: choice for seam, _, choice in (part.rpartition("=") for part in parts)}
    for part in parts:
        if not part.endswith("=" + pins[part.rpartition("=")[0]]):
            raise InvalidInput(f"--place {text}", f"{part!r} contradicts another pin of it")
    return pins


def parse_schedule(rows: Sequence[str] | None) -> dict[str, str] | str | None:
    """One bare row (its items are KEY=VALUE), or rows that each begin with a kernel's name."""
    if not rows:
        return None
    if not all(row.strip() for row in rows):
        raise InvalidInput("--schedule", "it is empty; --ir tile prints the row in use")
    if len(rows) == 1 and "=" in rows[0].split(maxsplit=1)[0]:
        return rows[0]
    bare = next((row for row in rows if "=" not in row), None)
    if bare is not None:
        raise InvalidInput(f"--schedule {bare!r}", f"it has no KEY=VALUE, as '{EXAMPLE}' has; --ir tile prints the row in use")
    named = [row.split(maxsplit=1) for row in rows]
    if not all(len(parts) == 2 and "=" not in parts[0] for parts in named):
        raise InvalidInput("--schedule", "several schedules need a kernel's name each: 'KERNEL WORK=... TILE=...'")
    return dict(named)


def load(program: str, inputs: str | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """NAME of FILE.py and its example inputs: ``--inputs``, else ``example_inputs`` in the file (a tuple, or a function giving it)."""
    import runpy

    import torch

    path, _, name = program.rpartition(":")
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        scope = runpy.run_path(path)
        found = scope.get(name)
        given = eval(inputs, {**scope, "torch": torch}) if inputs is not None else scope.get("example_inputs")
        given = given() if callable(given) else given
    except SyntaxError as error:
        raise InvalidSource("--inputs" if error.filename == "<string>" else f"{error.filename}:{{}}", error) from error
    except Exception as error:
        raise InvalidInput(program, f"running it raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InvalidInput(program, f"the file defines no function or module {name!r}{_definitions(Path(path))}")
    if given is None:
        raise InvalidInput(program, "no example inputs: give --inputs EXPR, or define example_inputs in the file")
    return found, tuple(given) if isinstance(given, tuple | list) else (given,)


def _definitions(path: Path) -> str:
    """What the top level of a file defines, as the rest of a sentence."""
    try:
        body = ast.parse(path.read_text()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)]
    names += [t.id for s in body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)]
    return f"; {path.name} defines {', '.join(dict.fromkeys(names))}" if names else ""


def rules_of(files: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of ``--rules`` files, in order."""
    from emmy_eq import extensions

    return tuple(rule for path in files for rule in extensions.from_file(path))


def store_path(options: argparse.Namespace) -> Path:
    """``--store``, else the default."""
    from emmy_eq.extract.store import default_path

    path = Path(options.store) if options.store is not None else default_path()
    if path is None:
        raise InvalidInput("the timing store", "EMMY_EQ_STORE is empty, which means none; give --store FILE")
    return path
