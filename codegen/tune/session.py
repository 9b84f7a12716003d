"""Tuning of a program's kernels: one worker process a device, one row at a time, every answer stored at once."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from emmy_eq import loop_ir
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.codegen.tune.protocol import Worker
from emmy_eq.codegen.tune.search import Search
from emmy_eq.codegen.tune.software import version
from emmy_eq.codegen.tune.watchdog import LocalWorker
from emmy_eq.errors import EmmyError, InvalidInput
from emmy_eq.extract.measured import together
from emmy_eq.extract.store import Key, Measurement, Store
from emmy_eq.extract.targets import Target

GPU = "emmy_eq.codegen.tune.device:Gpu"
ROW_SECONDS = 60.0  # for compiling, checking and timing one row, which takes one or two
PREPARE_SECONDS = 300.0  # for the float64 reference of a kernel
LOSSES = ("fault", "hang", "memory")  # after which a worker is started anew

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tuned:
    """One kernel.  ``default``: the row that a compile takes without a store; ``measured``: rows of this run; ``marks``: rows that are
    not tried again, with the reason; ``problem``: why the kernel was given up, or empty."""

    kernel: str
    identity: str
    default: Measurement | None
    best: Measurement | None
    measured: int
    marks: tuple[Measurement, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Tuning:
    kernels: tuple[Tuned, ...]
    interrupted: bool


def stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tune(kernels: Sequence[loop_ir.Kernel], target: Target, path: Path, rows: int = 12, minutes: float | None = None, **how: Any) -> Tuning:
    """`Tuner.tune` of a tuner that ``how`` makes and that ends with it."""
    with Tuner(target, path, **how) as tuner:
        return tuner.tune(kernels, rows, minutes)


class Tuner:
    """Worker processes on equal devices, and the store at ``path`` that their answers go to.

    ``factory``: ``MODULE:NAME`` of the `Device` that workers make.  ``workers``: those to use instead of one on each of this machine's
    ``devices`` first devices.  Raises `EmmyError` where a worker cannot start, `StoreError` where nothing can be stored.
    """

    def __init__(
        self,
        target: Target,
        path: Path,
        devices: int = 1,
        factory: str = GPU,
        workers: Sequence[Worker] | None = None,
        row_seconds: float = ROW_SECONDS,
        command: str | None = None,
        say: Say = stderr,
    ) -> None:
        self.target, self.path, self.row_seconds, self.say = target, path, row_seconds, say
        self.command = shlex.join(sys.argv) if command is None else command
        self.workers = workers if workers is not None else [LocalWorker(factory, n) for n in range(devices)]
        self.searches: dict[str, Search] = {}  # by kernel identity
        self.waiting: list[Search] = []  # not begun
        self.ends: dict[Search, float] = {}  # when each that was begun has to end
        self.end = float("inf")
        self.stopped = False
        self.lock = threading.Lock()

    def __enter__(self) -> Tuner:
        try:
            facts = [w.start() for w in self.workers]
            if any(f != facts[0] for f in facts):
                raise InvalidInput("the devices", f"they differ: {', '.join(f['device'] for f in facts)}")
            self.facts = facts[0]
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        for w in self.workers:
            w.stop()

    def key(self, identity: str, row: str) -> Key:
        return Key(identity, row, self.target.name, emmy_eq=version(), **self.facts)

    def tune(self, kernels: Sequence[loop_ir.Kernel], rows: int = 12, minutes: float | None = None) -> Tuning:
        """Look at ``rows`` rows of every kernel (equal ones once), within ``minutes`` if given, and return what is known of all so far.

        What the store has under the same key is not measured again, so an interrupted run goes on where it ended.  Ctrl-C stops the
        tuner and keeps what was measured.
        """
        with Store(self.path) as store:
            for kernel in kernels:
                identity = loop_ir.identity(kernel)
                if identity not in self.searches:
                    stored = {m.key.schedule: m for m in store.of(identity, self.target.name)}
                    same = {row: m for row, m in stored.items() if m.key == self.key(identity, row)}
                    self.searches[identity] = Search(kernel, self.target, rows, same)
                    self.waiting.append(self.searches[identity])
        self.end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        with ThreadPoolExecutor(len(self.workers)) as pool:
            serving = [pool.submit(self.serve, w) for w in self.workers]
            try:
                wait(serving, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                self.say("interrupted: what was measured is stored, and the next run goes on from there")
                self.abandon()
            interrupted = self.stopped
            if any(served.done() and served.exception() is not None for served in serving):
                self.abandon()
        for served in serving:
            served.result()
        return Tuning(tuple(_tuned(i, s) for i, s in self.searches.items()), interrupted)

    def abandon(self) -> None:
        """End what the workers do now."""
        self.stopped = True
        for w in self.workers:
            w.kill()

    def serve(self, worker: Worker) -> None:
        """One thread a worker: rows of one kernel as long as it has any, then of the next."""
        prepared: Search | None = None
        with Store(self.path) as store:
            while (task := self.take(prepared)) is not None:
                search, row = task
                if prepared is not search and not self.prepare(worker, search):
                    prepared = None
                    continue
                prepared = search
                answer = worker.ask({"measure": str(row)}, self.row_seconds)
                if self.stopped:
                    return
                self.learn(store, search, row, answer)
                if answer["outcome"] in LOSSES:
                    self.restart(worker)
                    prepared = None

    def take(self, prepared: Search | None) -> tuple[Search, Schedule] | None:
        """The next row for a worker: of the kernel that it has prepared, else of one that no worker has begun, else of any."""
        with self.lock:
            for search in [*([prepared] if prepared is not None else []), *self.waiting, *self.ends]:
                if search in self.waiting:  # from now on it has an equal share of the time that is left
                    now = time.monotonic()
                    self.ends[search] = now + (self.end - now) / len(self.waiting)
                    self.waiting.remove(search)
                if not self.stopped and time.monotonic() < self.ends[search] and (row := search.next()) is not None:
                    return search, row
        return None

    def prepare(self, worker: Worker, search: Search) -> bool:
        """Whether the worker can measure rows of this kernel now; a kernel for which it cannot is given up."""
        answer = worker.ask({"prepare": loop_ir.show(search.kernel), "target": self.record}, PREPARE_SECONDS)
        if "prepared" in answer:
            return True
        if not self.stopped:
            search.problem = answer["note"]
            self.say(f"{search.kernel.name}: given up: {search.problem}")
            self.restart(worker)
        return False

    @property
    def record(self) -> dict[str, Any]:
        """The target's fields, since this process may know targets that the worker's registry does not."""
        found = {f.name: getattr(self.target, f.name) for f in fields(self.target)}
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in found.items()}

    def together(self, program: loop_ir.Program) -> None:
        """Measure a program of tuned kernels whole, each under its best row."""
        identities = [loop_ir.identity(k) for k in program.kernels]
        rows = [best.key.schedule for i in identities if (best := self.searches[i].best) is not None]
        question = {"together": loop_ir.show(program), "rows": rows, "target": self.record}
        answer = self.workers[0].ask(question, PREPARE_SECONDS)
        m = self.measurement(self.key(together(identities), " | ".join(rows)), answer)
        with Store(self.path) as store:
            store.add(m)
        self.say(f"{len(rows)} kernels together  {f'{m.microseconds:.2f} us' if m.passed else f'{m.outcome}: {m.note}'}")
        if answer["outcome"] in LOSSES:
            self.restart(self.workers[0])

    def restart(self, worker: Worker) -> None:
        try:
            worker.start()
        except EmmyError:
            if not self.stopped:  # else it was killed, as all are
                raise

    def measurement(self, key: Key, answer: dict[str, Any]) -> Measurement:
        return Measurement(
            key=key,
            outcome=answer["outcome"],
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            command=self.command,
            samples=tuple(answer.get("samples", ())),
            error=answer.get("error"),
            limit=answer.get("limit"),
            contract=answer.get("contract", ""),
            note=answer.get("note", ""),
        )

    def learn(self, store: Store, search: Search, row: Schedule, answer: dict[str, Any]) -> None:
        m = self.measurement(self.key(loop_ir.identity(search.kernel), str(row)), answer)
        store.add(m)
        with self.lock:
            search.learn(m)
            best = f"best {search.best.microseconds:.2f} us" if search.best is not None else "none yet"
            found = f"{m.microseconds:.2f} us" if m.passed else f"{m.outcome}: {m.note}"
            self.say(f"{search.kernel.name} {len(search.tried)}/{search.rows}  {found}  ({best})  {row}")


def _tuned(identity: str, search: Search) -> Tuned:
    marks = tuple(m for m in search.tried.values() if m is not None and not m.passed)
    return Tuned(search.kernel.name, identity, search.default, search.best, search.measured, marks, search.problem)
