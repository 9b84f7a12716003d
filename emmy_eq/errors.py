"""What can go wrong, one class a kind; every message is one clear paragraph, and none of them is ever a wrong result."""

from __future__ import annotations

from collections.abc import Sequence


class EmmyError(Exception):
    """Base of all errors that are part of normal operation; the command line prints it and exits with ``exit_code``."""

    exit_code = 1


class Unsupported(EmmyError):
    """An operation, or an argument of one, that the compiler does not handle.

    ``op`` is the operation's name, ``why`` names the argument or property, ``where`` is the user's source line
    (``file.py:12 in forward``), ``shape`` the shape at hand.
    """

    def __init__(self, op: str, why: str, where: str = "", shape: Sequence[int] | None = None) -> None:
        self.op, self.why, self.where = op, why, where
        self.shape = tuple(shape) if shape is not None else None
        of = f" of shape {self.shape}" if self.shape is not None else ""
        self.reason = f"{op}{of}: {why}"
        super().__init__(f"Unsupported: {self.reason}{f' (at {where})' if where else ''}.")


class InvalidInput(EmmyError):
    """The user's program, option or value is not one that has a meaning: ``what`` is at fault, and ``why``."""

    exit_code = 2

    def __init__(self, what: str, why: str, where: str = "") -> None:
        self.what, self.why, self.where = what, why, where
        self.reason = f"{what}: {why}"
        super().__init__(f"Invalid input: {self.reason}{f' (at {where})' if where else ''}.")


class InvalidSource(InvalidInput):
    """Python text that does not parse; ``what`` is the file, or the line of text, with ``{}`` for its line number."""

    def __init__(self, what: str, error: SyntaxError) -> None:
        super().__init__(what.replace("{}", str(error.lineno)), error.msg)
        line = (error.text or "").rstrip()
        indent, start = len(line) - len(line.lstrip()), (error.offset or 1) - 1
        end = error.end_offset if error.end_lineno == error.lineno and error.end_offset else 0
        if line:
            self.args = (f"{self}\n    {line[indent:]}\n    {' ' * (start - indent)}{'^' * max(1, end - 1 - start)}",)


class NoDevice(EmmyError):
    """``what`` needs a GPU, and torch sees none; ``hint`` is what does without."""

    exit_code = 3

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"No CUDA device: {what} needs one{hint}.")


class VerifyError(EmmyError):
    """A program of one of the IRs breaks that IR's own rules: a fault of the compiler, or of text given to a parser.

    ``ir`` is the IR's name, ``where`` the statement or node, ``why`` the broken rule.
    """

    def __init__(self, ir: str, where: str, why: str) -> None:
        self.ir, self.where, self.why = ir, where, why
        super().__init__(f"Malformed {ir} IR: {where}: {why}.")
