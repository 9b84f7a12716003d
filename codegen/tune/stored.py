"""What a compile takes from the timing store."""

from __future__ import annotations

import sys

from emmy_eq import loop_ir
from emmy_eq.codegen import schedule
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.codegen.tune.candidates import legal
from emmy_eq.codegen.tune.software import version
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.store import Store, StoreError, best_row, default_path
from emmy_eq.extract.targets import Target


def stored_row(kernel: loop_ir.Kernel, target: Target) -> Schedule | None:
    """The fastest row that the store knows for ``kernel``; None without a store, or where the row is no longer legal.

    A store that cannot be read does not stop a compile: it is said on stderr.
    """
    path = default_path()
    if path is None or not path.is_file():
        return None
    try:
        with Store(path) as store:
            text = best_row(store, loop_ir.identity(kernel), target.name, emmy_eq=version())
        row = schedule.parse(text) if text is not None else None
    except InvalidInput:
        return None  # a row of an earlier release's spelling
    except StoreError as error:
        print(f"emmy_eq: {error}", file=sys.stderr)
        return None
    return row if row is not None and legal(kernel, row, target) else None
