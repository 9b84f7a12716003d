"""What a tuner needs of a worker, and a worker of its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from emmy_eq import loop_ir
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.extract.targets import Target


@dataclass(frozen=True, slots=True)
class Sample:
    """``microseconds``: none where the error is over the limit; ``contract`` says what both are."""

    microseconds: tuple[float, ...]
    error: float
    limit: float
    contract: str


class Device(Protocol):
    """Made by a factory that takes the device's number; the factory raises `EmmyError` where there is none."""

    facts: Mapping[str, str]  # device, driver, torch, nvrtc

    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        """Draw inputs and compute what is expected; the result measures one row."""

    def together(self, program: loop_ir.Program, rows: Sequence[Schedule], target: Target) -> Sample:
        """Of a program of kernels that were measured, each under its row; it is right where it gives what they give one by one."""


class Worker(Protocol):
    """One device somewhere, with a watchdog before it."""

    def start(self) -> dict[str, str]:
        """The device's facts; again after an answer that says the worker is lost.  Raises `EmmyError` where it cannot start."""

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer, as `emmy_eq.codegen.tune.worker` gives it; outcome ``hang``, ``memory`` or ``fault`` where there is none in time."""

    def kill(self) -> None:
        """From any thread; the one that waits for an answer then gets one."""

    def stop(self) -> None: ...
