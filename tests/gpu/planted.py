"""The real device of a tuning worker, with a faulting and an endless kernel planted into rows."""

from __future__ import annotations

import os
from collections.abc import Callable

import cupy
import torch

from emmy_eq import loop_ir
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.codegen.tune.device import Gpu
from emmy_eq.codegen.tune.protocol import Sample
from emmy_eq.extract.targets import Target

LOG = "EMMY_EQ_TEST_LOG"  # a file: one line a row that was measured, by any worker

_FAULT = 'extern "C" __global__ void planted(int *p) { *(volatile int *)8 = 1; }'
_ENDLESS = 'extern "C" __global__ void planted(volatile int *p) { while (*p == 0) {} }'


class Planted(Gpu):
    """The second row writes to an address that is none, the third never ends."""

    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        measure = super().prepare(kernel, target)

        def planted(row: Schedule) -> Sample:
            with open(os.environ[LOG], "a+") as log:
                log.seek(0)
                n = len(log.readlines())
                log.write(f"{row}\n")
            if n in (1, 2):
                cupy.RawKernel(_FAULT if n == 1 else _ENDLESS, "planted")((1,), (1,), (cupy.zeros(1, cupy.int32),))
                torch.cuda.synchronize()
                cupy.cuda.get_current_stream().synchronize()
            return measure(row)

        return planted
