"""``emmy-eq fuzz``: random programs through every stage until the time is over; what fails is made small and kept.

A corpus is a folder: ``NAME.py`` is one reproducer (``program``, ``example_inputs``, and the fields of a `Case`), run again first of
all; ``examples`` is hypothesis's own record of what failed, from which it goes on shrinking.
"""

from __future__ import annotations

import hashlib
import runpy
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, InMemoryExampleDatabase

from emmy_eq.errors import InvalidInput
from emmy_eq.testing.apart import Overtime, apart, limit
from emmy_eq.testing.shrink import shrink
from emmy_eq.testing.sources import Source
from emmy_eq.testing.stages import Mismatch, check_program
from emmy_eq.testing.strategies import programs

BATCH = 50  # programs between two looks at the clock and the corpus; every fourth batch has special values
PATIENCE = 120.0  # processor seconds for one program, beyond which it counts as a failure: a saturation or search without end
GRACE = 60.0  # seconds beyond the end for what was just found to become small
ACCURACIES = ("default", "default", "default", "strict", "fast")  # of finite programs
SPECIAL = ("strict", "strict", "default", "fast")  # of those with special values
CUBINS = 20  # every so many programs, NVRTC compiles the CUDA too


@dataclass(frozen=True, slots=True)
class Case:
    """How a program is checked, as `check_program` takes it."""

    special: bool
    accuracy: str
    key: int

    def __str__(self) -> str:
        return f"special = {self.special}\naccuracy = {self.accuracy!r}\nkey = {self.key}\n"


@dataclass(frozen=True, slots=True)
class Failure:
    """``kind`` tells failures apart: the stage that is wrong, or the error and where it was raised."""

    kind: str
    why: str
    program: str  # a module, as `emmy_eq.testing.Source` prints it
    slow: bool = False  # it took too long: making it small would take `PATIENCE` again and again


@dataclass(slots=True)
class Fuzzer:
    """``known`` failures are not looked for again; ``begin`` is told of each program, ``find`` of each new failure."""

    until: float
    say: Callable[[str], None]
    corpus: Path | None = None
    count: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    known: dict[str, Failure] = field(default_factory=dict)
    begin: Callable[[str], None] = lambda text: None
    find: Callable[[Failure], None] = lambda failure: None

    def run(self, first_seed: int) -> None:
        """Batches with seeds from ``first_seed`` on until the time is over, after the corpus's own programs."""
        for path in sorted(self.corpus.glob("*.py")) if self.corpus is not None else ():
            self.apart(partial(self.replay, path))
        n = 0
        while time.monotonic() < self.until:
            self.apart(partial(self.batch, first_seed + n, special=n % 4 == 3))
            n += 1

    def apart(self, work: Callable[[], None]) -> None:
        """``work`` in a process of its own; the program that it was lost at is a failure, as is what it had found by then."""
        running = ""
        found: list[Failure] = []

        def inside(say: Callable[[Any], None]) -> None:
            self.begin = self.find = say
            work()
            say((self.rows, self.refused, self.known))

        def hear(said: Any) -> None:
            nonlocal running
            if isinstance(said, str):
                running = said
                self.count += 1
            elif isinstance(said, Failure):
                found[:] = [said]
            else:
                self.rows, self.refused, self.known = said

        lost = apart(inside, hear, self.until + GRACE + PATIENCE)
        for failure in (*found, Failure(f"the process {lost}", "at this program", running, slow=True)) if lost else ():
            self.keep(failure)

    def replay(self, path: Path) -> None:
        scope = runpy.run_path(str(path))
        case = Case(scope["special"], scope["accuracy"], scope["key"])
        failure = self.attempt(scope["program"], scope["example_inputs"], path.read_text(), case)
        if failure is not None:
            self.known[failure.kind] = failure
            self.say(f"still fails: {path}")

    def batch(self, number: int, special: bool) -> None:
        """At most one new failure, made small by hypothesis."""
        found: list[tuple[Source, Failure]] = []

        @seed(number)
        @settings(max_examples=BATCH, database=self.database(), deadline=None, suppress_health_check=list(HealthCheck),
                  phases=(Phase.reuse, Phase.generate, Phase.shrink), report_multiple_bugs=False)  # fmt: skip
        @given(programs(special=special))
        def one(source: Source) -> None:
            if time.monotonic() > self.until + (GRACE if found else 0):
                return
            if found and found[0][1].slow:
                return
            failure = self.failure(source, special)
            if failure is None or failure.kind in self.known or (found and failure.kind != found[0][1].kind):
                return  # the first kind is made small before others are looked for
            found.append((source, failure))
            self.find(failure)
            raise AssertionError(failure.kind)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one()
        except BaseException as error:
            if not found or isinstance(error, KeyboardInterrupt):
                raise
        if found:
            least, failure = min(found, key=lambda f: (len(f[0].body), len(str(f[0]))))
            self.keep(failure if failure.slow else self.smaller(least, failure, special))

    def smaller(self, source: Source, failure: Failure, special: bool) -> Failure:
        def fails(candidate: Source) -> bool:
            nonlocal failure
            if time.monotonic() > self.until + GRACE:
                return False
            new = self.failure(candidate, special)
            if new is None or new.kind != failure.kind:
                return False
            failure = new
            return True

        shrink(source, fails)
        return failure

    def failure(self, source: Source, special: bool) -> Failure | None:
        key = int(hashlib.sha256(str(source).encode()).hexdigest()[:6], 16)
        accuracies = SPECIAL if special else ACCURACIES
        case = Case(special, accuracies[key % len(accuracies)], key)
        return self.attempt(source.function(), source.tensors(), f"{source}{case}", case)

    def attempt(self, function: Callable[..., Any], inputs: tuple[Any, ...], text: str, case: Case) -> Failure | None:
        self.begin(text)
        self.count += 1
        if self.count % 10 == 0:
            self.say(self.progress())
        try:
            with limit(PATIENCE):
                nvrtc = case.key % CUBINS == 0
                done = check_program(function, inputs, special=case.special, accuracy=case.accuracy, key=case.key, nvrtc=nvrtc)
        except (Exception, Overtime) as error:
            return Failure(_kind(error), f"{type(error).__name__}: {error}", text, isinstance(error, Overtime))
        self.rows += done.rows
        self.refused.update(done.refused)
        return None

    def keep(self, failure: Failure) -> None:
        self.known[failure.kind] = failure
        if self.corpus is not None:
            name = hashlib.sha256(failure.program.encode()).hexdigest()[:10]
            (self.corpus / f"{name}.py").write_text(failure.program)

    def database(self) -> ExampleDatabase:
        return InMemoryExampleDatabase() if self.corpus is None else DirectoryBasedExampleDatabase(self.corpus / "examples")

    def progress(self) -> str:
        left = max(0, int(self.until - time.monotonic()))
        return f"{left // 60}:{left % 60:02d} left, {self.count} programs, {self.rows} runs on the simulator, {len(self.known)} failures"


def fuzz(minutes: float, first_seed: int = 0, corpus: Path | None = None, out: Callable[[str], None] = print) -> int:
    """The exit code: 1 where something failed.  Progress goes to stderr, on one line of a terminal.

    Raises `InvalidInput` for a time or a folder that cannot be.
    """
    if minutes < 0:
        raise InvalidInput(f"--minutes {minutes:g}", "it is at least 0")
    if corpus is not None:
        try:
            corpus.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"--corpus {corpus}", error.strerror or str(error)) from error
    fuzzer = Fuzzer(time.monotonic() + 60 * minutes, _progress_line, corpus)
    fuzzer.run(first_seed)
    for failure in fuzzer.known.values():
        out(f"# {failure.kind}: {failure.why}\n{failure.program}")
    out(f"seed {first_seed}: {fuzzer.count} programs, {fuzzer.rows} runs on the simulator, {len(fuzzer.known)} failures")
    for why, n in fuzzer.refused.most_common():
        out(f"  refused {n} times: {why}")
    return 1 if fuzzer.known else 0


def _progress_line(text: str) -> None:
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"fuzz: {text}".ljust(100), end=end, file=sys.stderr, flush=True)


def _kind(error: BaseException) -> str:
    if isinstance(error, Mismatch):
        return error.stage.partition(":")[0]
    last = traceback.extract_tb(error.__traceback__)[-2 if isinstance(error, Overtime) else -1]  # a signal's handler is none of its place
    return f"{type(error).__name__} in {last.name} ({Path(last.filename).name})"
