"""Devices for the tuning worker that need no GPU: they answer, raise, crash or hang as they are told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from emmy_eq import loop_ir
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.codegen.tune.protocol import Sample
from emmy_eq.errors import EmmyError, Unsupported
from emmy_eq.extract.targets import Target

LOG = "EMMY_EQ_TEST_LOG"  # a file: one line a row that was measured
PLANTED = "EMMY_EQ_TEST_PLANTED"  # the faults of the first, second, ... row that is measured, with commas between; the last one stays


class OutOfMemoryError(RuntimeError):
    """As torch's."""


class Fake:
    """A row's time is its distance from 256 threads."""

    def __init__(self, number: int) -> None:
        self.facts = {"device": "fake", "driver": "1.0", "torch": "2.0", "nvrtc": "13.0"}

    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        print("a library that prints")
        assert target.flops["fma"] > 0
        return self.measure

    def together(self, program: loop_ir.Program, rows: Sequence[Schedule], target: Target) -> Sample:
        took = sum(self.prepare(k, target)(row).microseconds[0] for k, row in zip(program.kernels, rows, strict=True))
        return Sample((took,), 0.0, 0.0, "one by one")

    def measure(self, row: Schedule) -> Sample:
        with open(os.environ[LOG], "a+") as log:
            log.seek(0)
            n = len(log.readlines())
            log.write(f"{row}\n")
        faults = os.environ[PLANTED].split(",")
        fault = faults[min(n, len(faults) - 1)]
        if fault == "abort":
            os.abort()
        if fault == "hang":
            time.sleep(1000)
        if fault == "slow":
            time.sleep(0.3)
        if fault == "killed":
            os.kill(os.getpid(), 9)
        if fault == "raise":
            raise RuntimeError("an illegal memory access was encountered")
        if fault == "memory":
            raise OutOfMemoryError("tried to allocate 1 TiB")
        if fault == "refused":
            raise Unsupported("schedule", "no")
        if fault == "wrong":
            return Sample((), float("inf"), 1e-6, "close")
        took = 10.0 + abs(row.threads - 256) + row.resident
        return Sample((took, took + 1, took - 1), 1e-7, 1e-6, "close")


class Contrary(Fake):
    """A kernel takes as long as it has folds, squared: against the model, which fuses small products."""

    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        took = 10.0 * sum(isinstance(s, loop_ir.Fold) for s in loop_ir.walk(kernel.body)) ** 2
        return lambda row: Sample((took, took, took), 1e-7, 1e-6, "close")


class Slowing(Fake):
    """A kernel takes as long as it has folds; in turn, two take 1 us more, or less on `Hastening`."""

    more = 1.0

    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        took = 10.0 * sum(isinstance(s, loop_ir.Fold) for s in loop_ir.walk(kernel.body))
        return lambda row: Sample((took, took, took), 1e-7, 1e-6, "close")

    def together(self, program: loop_ir.Program, rows: Sequence[Schedule], target: Target) -> Sample:
        took = super().together(program, rows, target).microseconds[0] + self.more
        return Sample((took, took, took), 0.0, 0.0, "one by one")


class Hastening(Slowing):
    more = -1.0


class NoDevice(Fake):
    def __init__(self, number: int) -> None:
        raise EmmyError("no device here")


class Crashing(Fake):
    def __init__(self, number: int) -> None:
        raise ValueError("a broken installation")


class Other(Fake):
    """Two of these are different models."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.facts["device"] = f"fake {number}"


class Unprepared(Fake):
    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        raise Unsupported("tuning", "the folds are too long")
