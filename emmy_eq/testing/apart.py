"""Bounds for work that may not end, or take its process with it."""

from __future__ import annotations

import math
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

FORK = multiprocessing.get_context("fork")


class Overtime(BaseException):
    """No `Exception`: code that handles those would take it for one of its own."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise `Overtime` in the block once it has had so much of the processor: a busy machine is no fault of the program.

    Native code that does not return, so that Python cannot raise, dies of SIGXCPU with its process after twice as much.
    """

    def over(*_: Any) -> None:
        raise Overtime(f"more than {seconds:.0f} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    before = signal.signal(signal.SIGPROF, over)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + 2 * seconds), hard))
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # and every second: Python drops what is raised in a destructor
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def apart(work: Callable[[Callable[[Any], None]], None], hear: Callable[[Any], None], until: float) -> str | None:
    """Run ``work(say)`` in a process of its own, and ``hear`` here what it says; how that process was lost, if it was.

    It is killed at ``until``, on the clock of `time.monotonic`.
    """
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_work, args=(work, theirs.send))
    process.start()
    theirs.close()
    try:
        with suppress(EOFError):
            while ours.poll(None if math.isinf(until) else max(0.0, until - time.monotonic())):
                hear(ours.recv())
            process.kill()
            return "it did not end"
        process.join()
    finally:
        process.kill()
    code = process.exitcode or 0
    return None if code == 0 else f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _work(work: Callable[[Callable[[Any], None]], None], say: Callable[[Any], None]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work(say)
