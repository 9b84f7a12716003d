"""The database's layout, by version: step n of `STEPS` takes a store of version n to n + 1, and a new layout is one more step."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from emmy_eq.errors import EmmyError

APPLICATION = 0x656D6D79  # "emmy", in the file's header
PAGE = 16384  # bytes; a record fits into one, which `emmy_eq.extract.store.record.salvage` relies on

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE measurements (digest TEXT PRIMARY KEY, kernel TEXT NOT NULL, target TEXT NOT NULL, record TEXT NOT NULL)",
        "CREATE INDEX by_kernel ON measurements (kernel, target)",
    ),
)


class StoreError(EmmyError):
    """The timing store at ``path`` cannot be used; what was committed to it before is still there."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"Timing store {path}: {why}.")


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make or migrate the tables.  Raises `StoreError` for a file that a later release made, or another program."""
    connection.execute(f"PRAGMA page_size={PAGE}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and (tables or version):
        raise StoreError(path, "it is a database of another program")
    if version > len(STEPS):
        raise StoreError(path, f"a later release of emmy_eq made it (schema {version}; this one knows {len(STEPS)})")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")  # a commit survives a power cut; a measurement takes seconds to make
    if version == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in (s for step in STEPS[version:] for s in step):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
