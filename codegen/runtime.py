"""Runs compiled kernels on torch's memory and torch's current stream.

CuPy loads the cubins; launches go straight to the driver with argument arrays that are packed once and patched with the
tensors' addresses.  The stream is asked of torch at every call, so work is ordered with the caller's.  Outputs and
intermediates come from torch's allocator (which knows streams), hence a caller may capture a call into a CUDA graph.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from emmy_eq import loop_ir
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen import tensor_map
from emmy_eq.codegen.cuda import dynamic_shared, entry_point
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.targets import Target
from emmy_eq.loop_ir import Buffer
from emmy_eq.ops import itemsize
from emmy_eq.torch_ir import torch_dtype

_STATIC_SHARED = 48 << 10  # bytes of dynamic shared memory that need no opting in
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_ARENA_ALIGN = 256  # bytes; as cudaMalloc aligns, and enough for TMA
_POINTER_ALIGN = 16  # bytes; vector access and TMA rely on it


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with its machine code.  ``arguments``: the program's buffer for each parameter that is no scratch, by the
    parameter's name."""

    kernel: ir.Kernel
    cubin: bytes
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Program:
    """Launches in order.  ``outputs``: (buffer, shape) of the results; several may share a buffer."""

    launches: tuple[Launch, ...]
    inputs: tuple[Buffer, ...]
    temps: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    arch: str


def load(
    program: loop_ir.Program, kernels: Sequence[ir.Kernel], sources: Sequence[str], target: Target
) -> Callable[..., list[torch.Tensor]]:
    """Compile the kernels of a program; the result takes its inputs by name and gives its results in order."""
    with ThreadPoolExecutor(len(kernels) or 1) as pool:
        cubins = list(pool.map(lambda source: compile_cubin(source, target.arch), sources))
    launches = tuple(
        Launch(kernel, cubin, {p.name: p.name for p in kernel.params if p.kind not in ("scratch", "zeroed")})
        for kernel, cubin in zip(kernels, cubins, strict=True)
    )
    outputs = tuple(Buffer(name, shape, dtype) for name, shape, dtype, _ in program.outputs)
    executable = Executable(Program(launches, program.inputs, program.temps, outputs, target.arch))
    names = [b.name for b in program.inputs]
    return lambda given: executable(*(given[name] for name in names))


class Executable:
    """``executable(*inputs) -> outputs`` on the inputs' device and the current stream.

    Inputs must have the program's shapes and dtypes and one device; strided or misaligned ones are copied.  Raises
    `InvalidInput`.  Safe to call from several threads and on several streams.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._loaded: dict[int, _Loaded] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        if len(inputs) != len(self.program.inputs):
            raise InvalidInput("arguments", f"{len(self.program.inputs)} are needed, not {len(inputs)}")
        device = self._device(inputs)
        given = [_usable(b, x, device) for b, x in zip(self.program.inputs, inputs, strict=True)]
        if device == torch.cuda.current_device():
            return self._run(device, given)
        with torch.cuda.device(device):
            return self._run(device, given)

    def capture(self, *inputs: torch.Tensor) -> Callable[[], list[torch.Tensor]]:
        """A CUDA graph of one call on these very tensors: each replay reads what they hold then, and overwrites the results of
        the replay before."""
        side = torch.cuda.Stream(self._device(inputs))
        side.wait_stream(torch.cuda.current_stream(side.device))
        with torch.cuda.stream(side):
            self(*inputs)  # loads modules and makes counters outside of the graph
        torch.cuda.current_stream(side.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            results = self(*inputs)

        def replay() -> list[torch.Tensor]:
            graph.replay()
            return results

        return replay

    def _device(self, inputs: Sequence[torch.Tensor]) -> int:
        if not inputs:
            return torch.cuda.current_device()
        if not inputs[0].is_cuda:
            raise InvalidInput(f"input {self.program.inputs[0].name}", f"is on {inputs[0].device}, not on a CUDA device")
        return inputs[0].get_device()

    def _run(self, device: int, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with self._lock:
            loaded = self._loaded.get(device)
            if loaded is None:
                loaded = self._loaded[device] = _Loaded(self.program, device)
            return loaded.run(given)


def _usable(b: Buffer, x: torch.Tensor, device: int) -> torch.Tensor:
    """``x`` as kernels may read it: dense, and aligned for vectors."""
    if x.get_device() != device:
        raise InvalidInput(f"input {b.name}", f"is on {x.device}, the first one on cuda:{device}")
    if tuple(x.shape) != b.shape or x.dtype != torch_dtype(b.dtype):
        raise InvalidInput(f"input {b.name}", f"must be {b.dtype}{list(b.shape)}, not {x.dtype} {list(x.shape)}")
    if x.is_neg() or x.is_conj():
        x = x.resolve_neg().resolve_conj()
    x = x.contiguous()
    return x.clone() if x.data_ptr() % _POINTER_ALIGN else x


class _Loaded:
    """The program on one device."""

    def __init__(self, program: Program, device: int) -> None:
        _check_arch(program.arch, device)
        self.program, self.device = program, torch.device("cuda", device)
        self.arena: dict[str, int] = {}  # offset of each temp and scratch buffer
        self.arena_size = 0
        outputs = {b.name for b in program.outputs}
        for b in program.temps:
            if b.name not in outputs:
                self._reserve(b.name, prod(b.shape) * itemsize(b.dtype))
        self.launches = [_Bound(launch, i, self) for i, launch in enumerate(program.launches)]
        self.counters: dict[int, torch.Tensor] = {}  # zeroed scratch by stream: kernels on two streams must not share it
        self.counter_size = sum(bound.zeroed_size for bound in self.launches)

    def _reserve(self, name: str, size: int) -> None:
        self.arena[name] = self.arena_size
        self.arena_size += -(-size // _ARENA_ALIGN) * _ARENA_ALIGN

    def scratch(self, launch: int, p: ir.Param) -> str:
        """The arena's name for a kernel's own scratch."""
        name = f"{launch}.{p.name}"
        self._reserve(name, p.size * itemsize(p.dtype))
        return name

    def run(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        stream: int = torch._C._cuda_getCurrentRawStream(self.device.index)
        inputs = {b.name: x for b, x in zip(self.program.inputs, given, strict=True)}
        made: dict[str, torch.Tensor] = {}
        for b in self.program.outputs:
            if b.name not in made:
                source = inputs.get(b.name)
                made[b.name] = torch.empty(b.shape, dtype=torch_dtype(b.dtype), device=self.device) if source is None else source.clone()
        addresses = {name: x.data_ptr() for name, x in (inputs | made).items()}
        arena = torch.empty(self.arena_size, dtype=torch.uint8, device=self.device) if self.arena_size else None
        if arena is not None:
            base = arena.data_ptr()
            addresses.update((name, base + offset) for name, offset in self.arena.items())
        counters = self._counters(stream) if self.counter_size else 0
        for bound in self.launches:
            bound.launch(addresses, counters, stream)
            counters += bound.zeroed_size
        return [made[b.name].view(b.shape) for b in self.program.outputs]

    def _counters(self, stream: int) -> int:
        found = self.counters.get(stream)
        if found is None:
            found = torch.zeros(self.counter_size, dtype=torch.uint8, device=self.device)
            # Inside a capture this is a node of the graph, whose memory pool must not serve calls outside of it.
            if not torch.cuda.is_current_stream_capturing():
                self.counters[stream] = found
        return found.data_ptr()


class _Bound:
    """A launch with its function and packed arguments.  Slots: one address a parameter, then one descriptor a tensor map."""

    def __init__(self, launch: Launch, number: int, loaded: _Loaded) -> None:
        self.kernel = launch.kernel
        self.names: list[str | None] = []  # of the buffer in each slot; None: zeroed scratch
        self.zeroed: list[int] = []  # offset in this launch's counters, by slot that is None
        self.zeroed_size = 0
        for p in self.kernel.params:
            if p.kind == "zeroed":
                self.names.append(None)
                self.zeroed.append(self.zeroed_size)
                self.zeroed_size += -(-p.size * itemsize(p.dtype) // _ARENA_ALIGN) * _ARENA_ALIGN
            else:
                self.names.append(loaded.scratch(number, p) if p.kind == "scratch" else launch.arguments[p.name])
        self.slots = (ctypes.c_uint64 * len(self.names))()
        where = [ctypes.addressof(self.slots) + 8 * i for i in range(len(self.names))]
        self.maps = [tensor_map.Descriptor(m, [p.name for p in self.kernel.params].index(m.buffer)) for m in self.kernel.maps]
        self.packed = (ctypes.c_void_p * max(1, len(where) + len(self.maps)))(*where, *(m.address for m in self.maps))
        self.pointer = ctypes.addressof(self.packed)
        self.shared = dynamic_shared(self.kernel)
        self.function = _function(launch, self.shared)
        self.launch_kernel = _driver().launchKernel

    def launch(self, addresses: Mapping[str, int], counters: int, stream: int) -> None:
        offsets = iter(self.zeroed)
        for i, name in enumerate(self.names):
            self.slots[i] = counters + next(offsets) if name is None else addresses[name]
        for m in self.maps:
            m.point_at(self.slots[m.slot])
        grid = self.kernel.grid
        self.launch_kernel(self.function.ptr, *grid, self.kernel.threads, 1, 1, self.shared, stream, self.pointer, 0)


def _driver() -> Any:
    from cupy_backends.cuda.api import driver  # imported here: programs are compiled where there is no CuPy

    return driver


def _function(launch: Launch, shared: int) -> Any:
    """CuPy's function object, which keeps its module; loaded into the current device's context."""
    from cupy.cuda.function import Module

    module = Module()
    module.load(launch.cubin)
    function = module.get_function(entry_point(launch.kernel))
    if shared > _STATIC_SHARED:
        _driver().funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, shared)
    return function


def _check_arch(arch: str, device: int) -> None:
    """A cubin runs on its own architecture and later minor versions; an ``a`` one on its own alone."""
    major, minor = torch.cuda.get_device_capability(device)
    digits = arch.removeprefix("sm_")
    wanted = int(digits.rstrip("a"))
    fits = wanted == 10 * major + minor if digits.endswith("a") else wanted // 10 == major and wanted % 10 <= minor
    if not fits:
        raise InvalidInput(f"target {arch}", f"cuda:{device} is {torch.cuda.get_device_name(device)} (sm_{major}{minor})")
