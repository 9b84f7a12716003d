"""Files of recorded measurements, as an option of a command names them."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lines(*fields: str) -> Callable[[str | Path], list[dict[str, Any]]]:
    """An argparse type: the JSON objects of a file, one a line, which have these fields."""

    def read(path: str | Path) -> list[dict[str, Any]]:
        try:
            found = [json.loads(line) for line in Path(path).read_text().splitlines()]
        except OSError as error:
            raise ArgumentTypeError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise ArgumentTypeError(f"{path} does not hold JSON objects, one a line") from error
        if not all(isinstance(record, dict) and record.keys() >= {*fields} for record in found):
            raise ArgumentTypeError(f"{path} is another kind of file: each line has {', '.join(fields)}")
        return found

    return read


def existing(path: str) -> Path:
    """An argparse type: a file that is there."""
    if not Path(path).is_file():
        raise ArgumentTypeError(f"{path}: there is no such file")
    return Path(path)


of_runs = lines("workload", "device", "eager", "compile", "emmy_eq")  # of `bench --json`
of_plans = lines("program", "target", "plans", "kernels")  # of `bench --kernels` and `bench.sweep --json`
of_rows = lines("program", "kernel", "target", "loops", "rows")  # of `bench.rows --json`
