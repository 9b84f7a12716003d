"""The store itself: an SQLite file in WAL mode that many processes read and write at once.

Every access holds a shared lock on ``FILE.lock``; opening, migration and repair hold it alone, so that none of them meets a writer.
A file that SQLite finds damaged is moved aside, its whole records go into a new one, and a message says so; one that has none is not ours.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.store.record import Measurement, from_line, salvage, to_line
from emmy_eq.extract.store.schema import StoreError, prepare

T = TypeVar("T")

BUSY_SECONDS = 60.0  # a write waits so long for others; one takes milliseconds
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full; what was stored before is kept",
    sqlite3.SQLITE_BUSY: f"other processes kept it locked for {BUSY_SECONDS:.0f} s",
    sqlite3.SQLITE_IOERR: "the system refused a read or a write (a limit, a quota, a failing disk); what was stored before is kept",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
}


def default_path() -> Path | None:
    """``EMMY_EQ_STORE``, else ``timings.sqlite`` in the user's cache folder.  None: the variable is there and empty, no store is used."""
    given = os.environ.get("EMMY_EQ_STORE")
    if given is not None:
        return Path(given) if given else None
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("EMMY_EQ_CACHE", f"{root}/emmy_eq")) / "timings.sqlite"


def _stderr(text: str) -> None:
    print(f"emmy_eq: {text}", file=sys.stderr)


class Store:
    """The store at ``path``, made where there is none.  ``say`` is told of damage.  For use by one thread; raises `StoreError`."""

    def __init__(self, path: Path, say: Callable[[str], None] = _stderr) -> None:
        self.path, self._say = Path(path), say
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._connection: sqlite3.Connection | None = None
        self._inode = 0  # of the file that is open: a repair puts another in its place
        self._was_open = False
        self._do(lambda connection: None)

    def add(self, *measurements: Measurement) -> int:
        """Commit them all or none; returns how many were new."""
        rows = [(m.digest, m.key.kernel, m.key.target, to_line(m)) for m in measurements]

        def insert(connection: sqlite3.Connection) -> int:
            connection.execute("BEGIN IMMEDIATE")
            try:
                before = connection.total_changes
                connection.executemany("INSERT OR IGNORE INTO measurements VALUES (?, ?, ?, ?)", rows)
                added = connection.total_changes - before
                connection.execute("COMMIT")
                return added
            except BaseException:
                if connection.in_transaction:  # SQLite has rolled back by itself where the disk is full
                    connection.execute("ROLLBACK")
                raise

        return self._do(insert)

    def of(self, kernel: str, target: str) -> list[Measurement]:
        """All measurements of a kernel made for ``target``, oldest first."""
        return self._read("WHERE kernel = ? AND target = ?", (kernel, target))

    def all(self) -> list[Measurement]:
        """Oldest first."""
        return self._read("", ())

    def _read(self, where: str, values: tuple[str, ...]) -> list[Measurement]:
        query = f"SELECT digest, record FROM measurements {where}"
        found = []
        for digest, text in self._do(lambda connection: connection.execute(query, values).fetchall()):
            try:
                found.append(from_line(text))
            except InvalidInput:
                self._say(f"timing store {self.path}: record {digest[:12]} is damaged and left out")
        return sorted(found, key=lambda m: (m.at, m.digest))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """``work`` on the open database; on a damaged one it is done again after the repair."""
        try:
            try:
                return self._attempt(work)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in _DAMAGED:
                    raise
                self._repair(str(error))
            return self._attempt(work)
        except sqlite3.Error as error:
            reason = _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error))
            raise StoreError(self.path, reason) from error
        except OSError as error:
            raise StoreError(self.path, f"{error.strerror} ({error.filename})") from error

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock(fcntl.LOCK_SH):
            if self._connection is not None and self.path.is_file() and self.path.stat().st_ino == self._inode:
                return work(self._connection)
        with self._lock(fcntl.LOCK_EX):
            self.close()
            self._connection = self._open()
            return work(self._connection)

    def _open(self) -> sqlite3.Connection:
        self._inode = self.path.stat().st_ino if self.path.is_file() else 0  # known also where opening fails
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._inode, self._was_open = self.path.stat().st_ino, True
        return connection

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """The kernel gives the lock back when a process dies."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock_path.open("w") as file:
            fcntl.flock(file, kind)
            yield

    def _repair(self, why: str) -> None:
        self.close()
        with self._lock(fcntl.LOCK_EX):
            if self.path.stat().st_ino != self._inode:
                return  # another process has done it
            wal = self.path.with_name(f"{self.path.name}-wal")
            parts = [p for p in (self.path, wal) if p.is_file()]
            kept = {m.digest: m for p in parts for m in salvage(p.read_bytes())}
            if not kept and not self._was_open:
                self._lock_path.unlink()
                raise StoreError(self.path, f"it is no timing store, and is left as it is ({why})")
            aside = self.path.with_name(f"{self.path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
            fresh = aside.with_name(f"{aside.name}.new")
            with Store(fresh) as new:
                new.add(*kept.values())
            new._lock_path.unlink()
            for part in reversed(parts):
                part.rename(aside.with_name(part.name.replace(self.path.name, aside.name, 1)))
            self.path.with_name(f"{self.path.name}-shm").unlink(missing_ok=True)
            fresh.rename(self.path)
        self._say(f"timing store {self.path} was damaged ({why}): {len(kept)} measurements were recovered, the file is now {aside}")
