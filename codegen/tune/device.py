"""A CUDA device, as the worker uses it: checks a row's result, then takes its times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from emmy_eq import loop_ir, timing
from emmy_eq.arrays import to_torch
from emmy_eq.codegen import kernel_ir, nvrtc
from emmy_eq.codegen.cuda import source
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.runtime import Executable, Launch, Program
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.codegen.tile_ir import to_tile
from emmy_eq.codegen.tune import reference
from emmy_eq.codegen.tune.protocol import Sample
from emmy_eq.execute import distance, require_cuda
from emmy_eq.extract.targets import Target

ONE_BY_ONE = "what the kernels give one by one, which were measured against float64"
Outputs = Sequence[torch.Tensor]


class Gpu:
    def __init__(self, index: int) -> None:
        require_cuda("tuning")
        torch.cuda.set_device(index)
        from cupy.cuda.runtime import driverGetVersion

        driver = driverGetVersion()
        self.facts = {
            "device": torch.cuda.get_device_name(index),
            "driver": f"{driver // 1000}.{driver % 1000 // 10}",  # the CUDA version that it supports
            "torch": torch.__version__,
            "nvrtc": nvrtc.version(),
        }

    def prepare(self, kernel: loop_ir.Kernel, target: Target) -> Callable[[Schedule], Sample]:
        arrays = reference.draw(kernel)
        expected = reference.Reference(kernel, arrays)
        tensors = [to_torch(arrays[b.name], b.dtype).cuda() for b in kernel.inputs]
        return lambda row: self._measure(executable(kernel, row, target), tensors, expected)

    def together(self, program: loop_ir.Program, rows: Sequence[Schedule], target: Target) -> Sample:
        launches = [_launch(kernel, row, target) for kernel, row in zip(program.kernels, rows, strict=True)]
        outputs = tuple(loop_ir.Buffer(*o[:3]) for o in program.outputs)
        arrays = reference.draw(program)
        memory = {b.name: to_torch(arrays[b.name], b.dtype).cuda() for b in program.inputs}
        tensors = list(memory.values())
        whole = Executable(Program(tuple(launches), program.inputs, program.temps, outputs, target.arch))
        for kernel, launch in zip(program.kernels, launches, strict=True):
            run = Executable(Program((launch,), kernel.inputs, (), kernel.outputs, target.arch))
            found = run(*(memory[b.name].reshape(b.shape) for b in kernel.inputs))
            memory |= {b.name: x for b, x in zip(kernel.outputs, found, strict=True)}
        times = timing.hot(lambda: whole(*tensors))
        error = max(distance(x, memory[b.name].reshape(b.shape)) for x, b in zip(whole(*tensors), outputs, strict=True))
        return Sample(tuple(times) if error == 0.0 else (), error, 0.0, ONE_BY_ONE)

    def _measure(self, run: Executable, tensors: Outputs, expected: reference.Reference) -> Sample:
        first = expected.verdict(run(*tensors))
        if not first.passed:
            return Sample((), first.error, first.limit, reference.CONTRACT)
        times = timing.hot(lambda: run(*tensors))
        # Once more: a counter that is not reset, or a race, shows in a later run.
        again = expected.verdict(run(*tensors))
        return Sample(tuple(times) if again.passed else (), again.error, again.limit, reference.CONTRACT)


def executable(kernel: loop_ir.Kernel, row: Schedule, target: Target) -> Executable:
    """One kernel under ``row`` as a program of its own."""
    return Executable(Program((_launch(kernel, row, target),), kernel.inputs, (), kernel.outputs, target.arch))


def _launch(kernel: loop_ir.Kernel, row: Schedule, target: Target) -> Launch:
    lowered = lower(to_tile(kernel, row), target)
    kernel_ir.verify(lowered)
    cubin = nvrtc.compile_cubin(source(lowered, target), target.arch)
    return Launch(lowered, cubin, {p.name: p.name for p in lowered.params if p.kind not in ("scratch", "zeroed")})
