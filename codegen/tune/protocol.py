"""What the worker needs of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

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
