"""What the runtime refuses before any device is asked."""

from __future__ import annotations

import pytest
import torch

from emmy_eq.codegen.runtime import Executable, Program
from emmy_eq.errors import InvalidInput
from emmy_eq.loop_ir import Buffer

RUN = Executable(Program((), (Buffer("x", (4,), "f32"),), (), (), "sm_90a"))


def test_number_of_arguments() -> None:
    with pytest.raises(InvalidInput, match="1 are needed, not 0"):
        RUN()


def test_cpu_tensor() -> None:
    with pytest.raises(InvalidInput, match="input x: is on cpu"):
        RUN(torch.zeros(4))
