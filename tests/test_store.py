"""The timing store: what was committed is there whatever happens to writers, the disk and the file."""

from __future__ import annotations

import io
import json
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emmy_eq.errors import InvalidInput
from emmy_eq.extract import store as st
from emmy_eq.extract.store import Key, Measurement, Store, StoreError, schema

ROOT = Path(__file__).parent.parent
KEY = Key("k" * 64, "WORK=t32 RASTER=row", "H200", "NVIDIA H200", "580.1", "2.9.0", "13.0", "0.1.0+abcd")


def measured(n: int = 0, microseconds: float = 10.0, **changes: str) -> Measurement:
    key = replace(KEY, **({"schedule": f"WORK=t32 TILE=i0:r{n} RASTER=row"} | changes))
    samples = (microseconds, microseconds + 1, microseconds)
    return Measurement(key, "passed", f"2026-01-01T00:00:{n:06d}", "emmy-eq tune -c x", samples, 1e-7, 1e-6)


def mark(outcome: str = "fault", n: int = 0) -> Measurement:
    return Measurement(replace(KEY, schedule=f"WORK=t64 TILE=i0:r{n} RASTER=row"), outcome, "2026-01-01", "tune", note="illegal address")


def test_what_is_added_is_read_and_adding_again_changes_nothing(tmp_path: Path) -> None:
    rows = [measured(0), measured(1), mark()]
    with Store(tmp_path / "t.sqlite") as store:
        assert store.add(*rows) == 3
        assert store.add(*rows) == 0
    with Store(tmp_path / "t.sqlite") as store:
        assert {m.digest: m for m in store.all()} == {m.digest: m for m in rows}
        assert store.of(KEY.kernel, "H100") == []


@pytest.mark.parametrize(
    "change",
    [
        {"error": 2e-6},
        {"error": None, "limit": None},
        {"error": float("nan")},
        {"samples": ()},
        {"samples": (float("inf"),)},
        {"outcome": "hang"},
        {"outcome": "fast"},
    ],
    ids=str,
)
def test_a_time_needs_a_passed_verdict(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        replace(measured(), **change)  # type: ignore[arg-type]


def test_best_row_is_the_least_median_of_right_results(tmp_path: Path) -> None:
    with Store(tmp_path / "t.sqlite") as store:
        assert st.best_row(store, KEY.kernel, "H200") is None
        other = measured(4, 1.0, device="NVIDIA H200 NVL")
        store.add(measured(1, 12.0), measured(2, 8.0), measured(3, 9.0), mark(), other)
        assert st.best_row(store, KEY.kernel, "H200", "NVIDIA H200") == measured(2).key.schedule
        assert st.best_row(store, KEY.kernel, "H200") == other.key.schedule
        assert st.best_row(store, KEY.kernel, "A100") is None
        store.add(measured(5, 20.0, emmy_eq="0.2.0"))
        assert st.best_row(store, KEY.kernel, "H200", emmy_eq="0.2.0") == measured(5).key.schedule


def test_a_row_that_failed_once_is_never_the_best() -> None:
    again = replace(measured(1), at="2026-02-02", outcome="wrong", samples=(), error=1.0)
    assert st.best([measured(1, 5.0), measured(2, 9.0), again]) == (measured(2).key.schedule, 9.0)
    assert st.best([again]) is None
    # The code generator of another version made the wrong one.
    older = replace(again, key=replace(again.key, emmy_eq="0.0.1"))
    assert st.best([measured(1, 5.0), measured(2, 9.0), older], KEY.emmy_eq) == (measured(1).key.schedule, 5.0)


def test_samples_of_several_runs_count_together() -> None:
    lucky, honest = measured(1, 5.0), replace(measured(1, 20.0), at="2026-02-02", samples=(20.0,) * 9)
    assert st.best([lucky, honest, measured(2, 9.0)]) == (measured(2).key.schedule, 9.0)


def test_default_path_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("EMMY_EQ_STORE", None), ("EMMY_EQ_CACHE", None), ("XDG_CACHE_HOME", "/c")):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert st.default_path() == Path("/c/emmy_eq/timings.sqlite")
    monkeypatch.setenv("EMMY_EQ_CACHE", "/e")
    assert st.default_path() == Path("/e/timings.sqlite")
    monkeypatch.setenv("EMMY_EQ_STORE", "/s.sqlite")
    assert st.default_path() == Path("/s.sqlite")
    monkeypatch.setenv("EMMY_EQ_STORE", "")
    assert st.default_path() is None


def _write(path: Path, first: int, count: int) -> None:
    with Store(path) as store:
        for n in range(first, first + count):
            assert store.add(measured(n)) == 1


def test_many_processes_write_at_once(tmp_path: Path) -> None:
    """From the first moment: they race for creating the file too."""
    path = tmp_path / "t.sqlite"
    writers = [multiprocessing.get_context("spawn").Process(target=_write, args=(path, 100 * i, 25)) for i in range(4)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    assert [w.exitcode for w in writers] == [0] * 4
    with Store(path) as store:
        assert len(store.all()) == 100


_WRITER = """
import sys
from pathlib import Path
from emmy_eq.extract.store import Store
from tests.test_store import measured
store = Store(Path(sys.argv[1]))
for n in range(100000):
    store.add(measured(n))
    print(n, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        writer.wait()
        writer.stdout.close()
        with Store(path) as store:
            stored = {m.digest for m in store.all()}
        assert {measured(n).digest for n in said} <= stored


def test_a_full_disk_is_said_and_keeps_what_was_stored(tmp_path: Path) -> None:
    with Store(tmp_path / "t.sqlite") as store:
        store.add(measured(0))
        assert store._connection is not None
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match="the disk is full; what was stored before is kept"):
            store.add(*(measured(n) for n in range(1, 200)))
        assert store.all() == [measured(0)]
        store._connection.execute("PRAGMA max_page_count=1000000")
        assert store.add(measured(1)) == 1


_LIMITED = (
    """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
"""
    + _WRITER
)


def test_a_refused_write_is_said_and_keeps_what_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    done = subprocess.run([sys.executable, "-c", _LIMITED, str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
    said = [int(line) for line in done.stdout.splitlines()]
    assert "the system refused a read or a write (a limit, a quota, a failing disk); what was stored before is kept" in done.stderr
    with Store(path) as store:
        assert {m.digest for m in store.all()} == {measured(n).digest for n in said}
        assert said
        assert store.add(measured(1000)) == 1


def _filled(path: Path, count: int = 60) -> bytes:
    with Store(path) as store:
        store.add(*(measured(n) for n in range(count)))
    return path.read_bytes()


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], int]] = {  # what is left of the file's bytes, and how many of 60 records at least
    "header": (lambda data: b"garbage!" * 12 + data[96:], 60),
    "first page": (lambda data: bytes(schema.PAGE) + data[schema.PAGE :], 60),
    "end": (lambda data: data[: -schema.PAGE], 30),
    "one page": (lambda data: data[: 2 * schema.PAGE] + b"\xff" * schema.PAGE + data[3 * schema.PAGE :], 30),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_moved_aside_and_read(kind: str, tmp_path: Path) -> None:
    path, said = tmp_path / "t.sqlite", list[str]()
    harm, least = DAMAGE[kind]
    harmed = harm(_filled(path))
    path.write_bytes(harmed)
    with Store(path, said.append) as store:
        found = store.all()
        assert store.add(measured(1000)) == 1
    assert len(found) >= least
    assert {m.digest for m in found} <= {measured(n).digest for n in range(60)}
    (message,) = said
    (aside,) = tmp_path.glob("t.sqlite.damaged-*")
    assert str(path) in message
    assert f"{len(found)} measurements were recovered, the file is now {aside}" in message
    assert aside.read_bytes() == harmed
    with Store(path, said.append) as store:
        assert len(store.all()) == len(found) + 1
    assert len(said) == 1


@pytest.mark.parametrize("content", [b"\x00\x01garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_holds_nothing_of_ours_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="it is no timing store, and is left as it is"):
        Store(path)
    assert [(p, p.read_bytes()) for p in tmp_path.iterdir()] == [(path, content)]


def test_damage_under_an_open_store_is_repaired_once(tmp_path: Path) -> None:
    path, said = tmp_path / "t.sqlite", list[str]()
    _filled(path)
    with Store(path, said.append) as one, Store(path, said.append) as other:
        path.write_bytes(b"x" * 40000)
        one.add(measured(100))
        other.add(measured(101))
        assert one.all() == other.all() == [measured(100), measured(101)]
    assert len(said) == 1


def test_a_changed_record_is_left_out(tmp_path: Path) -> None:
    path, said = tmp_path / "t.sqlite", list[str]()
    _filled(path, 3)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE measurements SET record = replace(record, '[10.0,', '[1.0,') WHERE digest = ?", (measured(1).digest,))
    connection.close()
    with Store(path, said.append) as store:
        assert store.all() == [measured(0), measured(2)]
    assert measured(1).digest[:12] in said[0]


def test_an_older_schema_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.sqlite"
    _filled(path, 3)
    step = ("ALTER TABLE measurements ADD COLUMN outcome TEXT", "UPDATE measurements SET outcome = json_extract(record, '$.outcome')")
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, step))
    with Store(path) as store:
        assert len(store.all()) == 3
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT DISTINCT outcome FROM measurements").fetchall() == [("passed",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


def test_a_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.sqlite"
    _filled(path, 3)
    with monkeypatch.context() as m:
        m.setattr(schema, "STEPS", (*schema.STEPS, ("ALTER TABLE measurements ADD COLUMN outcome TEXT", "nonsense")))
        with pytest.raises(StoreError, match="syntax error"):
            Store(path)
    with Store(path) as store:
        assert len(store.all()) == 3
        assert store.add(measured(7)) == 1


def test_a_later_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    _filled(path, 3)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="a later release of emmy_eq made it"):
        Store(path)
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "t.sqlite")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store(tmp_path / "t.sqlite")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        Store(tmp_path / "file" / "t.sqlite")


def test_export_and_import_are_inverse(tmp_path: Path) -> None:
    rows = [measured(0), mark("hang"), replace(measured(3), command="tune -c 'naïve \"λ\" }'", note="}")]
    text = io.StringIO()
    with Store(tmp_path / "a.sqlite") as a, Store(tmp_path / "b.sqlite") as b:
        a.add(*rows)
        assert st.export_lines(a, text) == 3
        assert st.import_lines(b, text.getvalue().splitlines()) == 3
        assert st.import_lines(b, text.getvalue().splitlines()) == 0
        assert b.all() == a.all()
    assert all(json.loads(line)["digest"] for line in text.getvalue().splitlines())


@pytest.mark.parametrize("line", ["{", "[]", "{}", '"x"', '{"digest":"0"}'])
def test_a_bad_line_imports_nothing(line: str, tmp_path: Path) -> None:
    text = io.StringIO()
    with Store(tmp_path / "t.sqlite") as store, Store(tmp_path / "u.sqlite") as other:
        other.add(measured())
        st.export_lines(other, text)
        with pytest.raises(InvalidInput, match="line 2"):
            st.import_lines(store, [text.getvalue(), line])
        with pytest.raises(InvalidInput, match="digest differs"):
            st.import_lines(store, [text.getvalue().replace("10.0", "1.0")])
        assert store.all() == []
