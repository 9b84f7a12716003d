"""Tuning on devices that crash, hang and lie: only the row at fault is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from emmy_eq import loop_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.schedule import parse
from emmy_eq.codegen.stored import stored_row, stored_times
from emmy_eq.codegen.tune import Tuning, tune
from emmy_eq.codegen.tune.candidates import legal, neighbours
from emmy_eq.codegen.tune.software import version
from emmy_eq.errors import EmmyError, InvalidInput
from emmy_eq.extract.store import Key, Measurement, Store, best_row
from emmy_eq.extract.targets import Target, target
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture_code
from tests.fake_devices import LOG, PLANTED
from tests.loop_samples import rmsnorm, softmax

ROOT = Path(__file__).parent.parent
H200 = target("H200")
KERNEL = rmsnorm(64, 256)
FAKE = "tests.fake_devices:Fake"


class Bench:
    """A store and a log in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log = folder / "t.sqlite", folder / "log"
        self.said: list[str] = []

    def tune(self, rows: int, kernels: tuple[loop_ir.Kernel, ...] = (KERNEL,), target: Target = H200, **options: object) -> Tuning:
        given: dict[str, object] = {"factory": FAKE, "command": "test", "say": self.said.append, "row_seconds": 20.0} | options
        return tune(kernels, target, self.store, rows, **given)  # type: ignore[arg-type]

    @property
    def measured(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(LOG, str(made.log))
    monkeypatch.setenv(PLANTED, "")
    return made


def test_rows_of_the_model_first_then_neighbours_of_the_best(bench: Bench) -> None:
    first = [str(row) for row in schedules(KERNEL, H200)]
    (tuned,) = bench.tune(len(first) + 6).kernels
    assert bench.measured[: len(first)] == first
    assert len(bench.measured) == tuned.measured == len(first) + 6
    assert tuned.default is not None
    assert tuned.default.key.schedule == first[0]
    assert tuned.best is not None
    assert tuned.best.microseconds == min(10.0 + abs(parse(r).threads - 256) + parse(r).resident for r in bench.measured)
    best = min(first, key=lambda r: 10.0 + abs(parse(r).threads - 256))
    near = {str(row) for row in neighbours(KERNEL, parse(best), H200)}
    assert bench.measured[len(first)] in near
    assert all(legal(KERNEL, parse(row), H200) for row in bench.measured)
    assert any("best" in line and "us" in line for line in bench.said)


def test_neighbours_are_legal_and_differ_in_one_place() -> None:
    (row, *_) = schedules(KERNEL, H200)
    found = list(neighbours(KERNEL, row, H200))
    assert len(found) == len(set(found)) >= 5
    assert row not in found
    for near in found:
        parts = [a != b for a, b in zip(str(row).split(), str(near).split(), strict=False)]
        assert sum(parts) <= 2  # a split, and WORK with it
        assert legal(KERNEL, near, H200)


def test_faults_cost_only_their_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {
        "": "passed",
        "abort": "fault",
        "raise": "fault",
        "memory": "memory",
        "killed": "memory",
        "refused": "refused",
        "wrong": "wrong",
    }
    monkeypatch.setenv(PLANTED, ",".join([*planted, ""]))
    (tuned,) = bench.tune(len(planted) + 1).kernels
    assert [m.outcome for m in tuned.marks] == list(planted.values())[1:]
    assert [m.key.schedule for m in tuned.marks] == bench.measured[1:-1]
    assert "SIGABRT" in tuned.marks[0].note
    assert "illegal memory access" in tuned.marks[1].note
    assert tuned.best is not None
    with Store(bench.store) as store:
        assert len(store.all()) == len(bench.measured) == len(planted) + 1
        assert best_row(store, loop_ir.identity(KERNEL), "H200", "fake") == tuned.best.key.schedule


def test_an_endless_row_is_stopped_and_not_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANTED, ",hang,")
    # Long enough for a worker that shares two cores with other tests to answer for the rows that do not hang.
    (tuned,) = bench.tune(3, row_seconds=4.0).kernels
    rows = bench.measured
    assert len(rows) == 3
    assert [(m.key.schedule, m.outcome, m.note) for m in tuned.marks] == [(rows[1], "hang", "no answer within 4 s")]
    (again,) = bench.tune(3).kernels
    assert again.measured == 0
    assert again.marks == tuned.marks
    assert bench.measured == rows


def test_a_second_run_goes_on_where_the_first_ended(bench: Bench) -> None:
    bench.tune(3)
    (tuned,) = bench.tune(5).kernels
    assert tuned.measured == 2
    assert len(set(bench.measured)) == len(bench.measured) == 5


def test_equal_kernels_are_tuned_once_and_others_apart(bench: Bench) -> None:
    mine = replace(H200, name="MyGPU")  # a record that only this process knows
    tuned = bench.tune(2, (KERNEL, KERNEL, softmax(64, 256)), mine, devices=2).kernels
    assert [t.kernel for t in tuned] == ["rmsnorm", "softmax"]
    assert [t.measured for t in tuned] == [2, 2]
    assert len(bench.measured) == 4


def test_a_time_limit_is_kept(bench: Bench) -> None:
    (tuned,) = bench.tune(100, minutes=0.0).kernels
    assert tuned.measured == 0


@pytest.mark.parametrize(
    ("factory", "message"), [("NoDevice", "no device here"), ("Crashing", "did not start.*a broken installation")], ids=["says", "crashes"]
)
def test_a_worker_that_cannot_start_is_said(factory: str, message: str, bench: Bench) -> None:
    with pytest.raises(EmmyError, match=message):
        bench.tune(2, factory=f"tests.fake_devices:{factory}")


def test_devices_that_differ_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="fake 0, fake 1"):
        bench.tune(2, factory="tests.fake_devices:Other", devices=2)


def test_a_kernel_without_reference_is_given_up(bench: Bench) -> None:
    (tuned,) = bench.tune(2, factory="tests.fake_devices:Unprepared").kernels
    assert "too long" in tuned.problem
    assert tuned.measured == 0
    assert tuned.best is None


_TUNE = """
import signal
import sys
from pathlib import Path
from emmy_eq.codegen.tune import tune
from tests.test_tune import FAKE, H200, KERNEL
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would what they start
print("begin", flush=True)
done = tune((KERNEL,), H200, Path(sys.argv[1]), 50, factory=FAKE, row_seconds=20.0, say=lambda text: print(text, flush=True))
print("interrupted" if done.interrupted else "done", done.kernels[0].measured, flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_stopping_keeps_what_was_measured_and_leaves_no_worker(how: signal.Signals, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANTED, "slow")
    run = subprocess.Popen([sys.executable, "-c", _TUNE, str(bench.store)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    said = [run.stdout.readline() for _ in range(4)]  # begin, and three rows
    workers = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(how)
    rest = run.stdout.read()
    run.wait()
    run.stdout.close()
    reported = [line for line in (*said, *rest.splitlines()) if line.startswith("rmsnorm")]
    with Store(bench.store) as store:
        stored = [m.key.schedule for m in store.all()]
    assert len(stored) >= len(reported) >= 3
    assert stored == bench.measured[: len(stored)]
    if how == signal.SIGINT:
        assert rest.splitlines()[-1] == f"interrupted {len(stored)}"
    end = time.monotonic() + 20
    while any(_running(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(workers) == 1
    assert not _running(workers[0])


def _running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_compile_takes_the_best_stored_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMMY_EQ_STORE", str(bench.store))
    assert stored_row(KERNEL, H200) is None
    assert not bench.store.exists()
    (tuned,) = bench.tune(8).kernels
    assert tuned.best is not None
    assert str(stored_row(KERNEL, H200)) == tuned.best.key.schedule
    assert stored_row(softmax(64, 256), H200) is None
    assert stored_row(KERNEL, target("A100")) is None
    monkeypatch.setenv("EMMY_EQ_STORE", "")
    assert stored_row(KERNEL, H200) is None


def test_stored_times_are_of_an_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs between accuracies is in a kernel's identity, or an atom of the row, which only ``fast`` takes."""

    def compiled(code: str, accuracy: str) -> Compiled:
        return Compiled(lambda: capture_code(code), Options("H200", accuracy))

    sums = [loop_ir.identity(*compiled("torch.randn(64, 256).exp().sum(1)", a).loop_ir.kernels) for a in ("strict", "default", "fast")]
    assert len(set(sums)) == 3
    default, fast = (compiled("torch.randn(64, 64) @ torch.randn(64, 64)", a) for a in ("default", "fast"))
    (kernel,) = fast.loop_ir.kernels
    assert loop_ir.identity(kernel) == loop_ir.identity(*default.loop_ir.kernels)
    rounded = next(row for row in schedules(kernel, fast.target) if "k8" in row.atoms.values())
    plain = schedules(kernel, default.target)[0]
    with Store(tmp_path / "t.sqlite") as store:
        for row, microseconds in ((rounded, 2.0), (plain, 5.0)):
            key = Key(loop_ir.identity(kernel), str(row), "H200", "fake", "1", "1", "1", version())
            store.add(Measurement(key, "passed", "2026-01-01T00:00:00", "tune", (microseconds,) * 3, 1e-7, 1e-6))
    monkeypatch.setenv("EMMY_EQ_STORE", str(tmp_path / "t.sqlite"))
    assert [stored_row(kernel, made.target) for made in (default, fast)] == [plain, rounded]
    assert [stored_times(made.target) for made in (default, fast)] == [{loop_ir.identity(kernel): us * 1e-6} for us in (5.0, 2.0)]


def test_a_store_that_cannot_be_read_does_not_stop_a_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.sqlite"
    with Store(path) as store:
        store._connection.execute("PRAGMA user_version=99")  # type: ignore[union-attr]
    monkeypatch.setenv("EMMY_EQ_STORE", str(path))
    assert stored_row(KERNEL, H200) is None
    assert "later release" in capsys.readouterr().err
