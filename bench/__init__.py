"""Workloads by name, timed beside eager PyTorch and torch.compile: ``python -m bench``."""

import sys
from collections.abc import Callable

from emmy_eq.errors import EmmyError


def ended(main: Callable[[], int]) -> int:
    """The exit code of ``main``; what is wrong with its input is a paragraph, as the ``emmy-eq`` command has it."""
    try:
        return main()
    except EmmyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
