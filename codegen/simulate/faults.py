"""What the simulator reports: a kernel that a GPU might run wrong."""

from __future__ import annotations

from emmy_eq.errors import EmmyError


class KernelFault(EmmyError):
    """``kind`` is one of race, bounds, alignment, divergence, deadlock, uninitialized, protocol; ``where`` is the statement."""

    def __init__(self, kernel: str, where: str, kind: str, why: str) -> None:
        self.kernel, self.where, self.kind, self.why = kernel, where, kind, why
        super().__init__(f"Kernel {kernel} is wrong ({kind}) at `{where}`: {why}.")


class Fault(Exception):
    """Raised inside the simulator, where the statement is not known; the engine turns it into a `KernelFault`."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind, self.why = kind, why
        super().__init__(why)
