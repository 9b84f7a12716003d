"""The hand-written kernels on the device: equal to the simulator bit for bit, since their sums are exact or their order is fixed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emmy_eq.arrays import to_numpy, to_torch
from emmy_eq.codegen import cuda, nvrtc, simulate
from emmy_eq.codegen.kernel_ir.verify import lacks
from emmy_eq.codegen.runtime import Executable, Launch, Program
from emmy_eq.extract.targets import Target, targets
from emmy_eq.loop_ir import Buffer
from tests.kernel_samples import Sample, buffers, last_block_sum, samples, vector_add


def here() -> Target:
    """The record of the device's architecture."""
    major, minor = torch.cuda.get_device_capability()
    found = [t for t in targets().values() if t.arch.rstrip("a") == f"sm_{major}{minor}"]
    return found[0] if found else targets()["A100"]


def executable(sample: Sample) -> Executable:
    kernel, target = sample.kernel, here()
    if lacks(kernel, target):
        pytest.skip(f"{target} lacks {', '.join(lacks(kernel, target))}")
    launch = Launch(
        kernel,
        nvrtc.compile_cubin(cuda.source(kernel, target), target.arch),
        {p.name: p.name for p in kernel.params if p.kind in ("input", "output")},
    )
    inputs, outputs = (tuple(Buffer(p.name, (p.size,), p.dtype) for p in kernel.params if p.kind == kind) for kind in ("input", "output"))
    return Executable(Program((launch,), inputs, (), outputs, target.arch))


def tensors(sample: Sample, arrays: dict[str, np.ndarray]) -> list[torch.Tensor]:
    return [to_torch(arrays[p.name], p.dtype).cuda() for p in sample.kernel.params if p.kind == "input"]


@pytest.mark.parametrize("name", samples())
def test_device_and_simulator_agree_bit_for_bit(name: str) -> None:
    sample = samples()[name]
    run = executable(sample)
    for seed in range(3):
        arrays = buffers(sample, sample.inputs(np.random.default_rng(seed)))
        simulate.run(sample.kernel, arrays)
        outputs = [p.name for p in sample.kernel.params if p.kind == "output"]
        for output, found in zip(outputs, run(*tensors(sample, arrays)), strict=True):
            np.testing.assert_array_equal(to_numpy(found).view(np.uint8), arrays[output].view(np.uint8))


def test_counters_are_zero_again_for_the_next_call() -> None:
    sample = last_block_sum()
    run = executable(sample)
    arrays = buffers(sample, sample.inputs(np.random.default_rng(0)))
    given = tensors(sample, arrays)
    found = {float(run(*given)[0]) for _ in range(20)}
    assert found == {float(arrays["x"].astype(np.float64).sum())}


def test_work_is_ordered_with_the_current_stream() -> None:
    sample = vector_add(1 << 22)
    run = executable(sample)
    x = torch.zeros(1 << 22, device="cuda")
    run(x, x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # tens of milliseconds: a kernel on another stream would read x before it is filled
        y = x.fill_(3.0)
        (found,) = run(y, y)
    stream.synchronize()
    assert bool((found == 6.0).all())


def test_counters_are_not_shared_between_streams() -> None:
    sample = last_block_sum(1 << 20)
    run = executable(sample)
    streams = [torch.cuda.Stream() for _ in range(4)]
    given = [torch.full((1 << 20,), float(i + 1), device="cuda") for i in range(4)]
    torch.cuda.synchronize()
    found = []
    for _ in range(5):
        for stream, x in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                found.append(run(x)[0])
    torch.cuda.synchronize()
    # Whole numbers up to 2**22: every partial sum is exact in float32.
    assert [float(x) for x in found] == [float((i + 1) << 20) for i in range(4)] * 5


def test_strided_and_misaligned_inputs_are_copied() -> None:
    sample = vector_add(1001)
    run = executable(sample)
    wide = torch.arange(2002.0, device="cuda")
    strided, shifted = wide[::2], torch.arange(1002.0, device="cuda")[1:]
    (found,) = run(strided, shifted)
    assert torch.equal(found, strided + shifted)


@pytest.mark.parametrize("sample", [vector_add(1001), last_block_sum()], ids=lambda s: s.kernel.name)
def test_a_captured_call_reads_its_inputs_anew(sample: Sample) -> None:
    run = executable(sample)
    arrays = buffers(sample, sample.inputs(np.random.default_rng(0)))
    given = tensors(sample, arrays)
    replay = run.capture(*given)
    for seed in (1, 2):
        arrays = buffers(sample, sample.inputs(np.random.default_rng(seed)))
        for to, x in zip(given, tensors(sample, arrays), strict=True):
            to.copy_(x)
        (found,) = replay()
        assert torch.equal(found, run(*given)[0])
