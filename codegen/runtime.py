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
    program: loop_ir.Program,
    kernels: Sequence[ir.Kernel],
    sources: Sequence[str],
    calls: Sequence[tuple[str, Mapping[str, str]]],
    target: Target,
) -> Callable[..., list[torch.Tensor]]:
    """Compile the ``kernels`` of a program, with their ``sources``; the result takes its inputs by name and gives its results in order.

    ``calls``: in launch order, the name of a kernel, and the program's buffer for each of its own.
    """
    with ThreadPoolExecutor(len(kernels) or 1) as pool:
        cubins = list(pool.map(lambda source: compile_cubin(source, target.arch), sources))
    compiled = {kernel.name: (kernel, cubin) for kernel, cubin in zip(kernels, cubins, strict=True)}
    launches = tuple(Launch(*compiled[name], arguments) for name, arguments in calls)
    outputs = tuple(Buffer(name, shape, dtype) for name, shape, dtype, _ in program.outputs)
    executable = Executable(Program(launches, program.inputs, program.temps, outputs, target.arch))
    names = [b.name for b in program.inputs]
    return lambda given: executable(*(given[name] for name in names))


@dataclass(frozen=True, slots=True)
class _Input:
    """What an argument has to be."""

    name: str
    shape: torch.Size
    dtype: torch.dtype

    def usable(self, x: torch.Tensor, device: int) -> torch.Tensor:
        """``x`` as kernels may read it: dense, and aligned for vectors."""
        if x.get_device() != device:
            raise InvalidInput(f"input {self.name}", f"is on {x.device}, the first one on cuda:{device}")
        if x.shape != self.shape or x.dtype != self.dtype:
            raise InvalidInput(f"input {self.name}", f"must be {self.dtype} {list(self.shape)}, not {x.dtype} {list(x.shape)}")
        if x.is_neg():
            x = x.resolve_neg()
        x = x.contiguous()
        return x.clone() if x.data_ptr() % _POINTER_ALIGN else x


class Executable:
    """``executable(*inputs) -> outputs`` on the inputs' device and the current stream.

    Inputs must have the program's shapes and dtypes and one device; strided or misaligned ones are copied.  Raises
    `InvalidInput`.  Safe to call from several threads and on several streams.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._inputs = tuple(_Input(b.name, torch.Size(b.shape), torch_dtype(b.dtype)) for b in program.inputs)
        self._loaded: dict[int, _Loaded] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        if len(inputs) != len(self._inputs):
            raise InvalidInput("arguments", f"{len(self._inputs)} are needed, not {len(inputs)}")
        device = self._device(inputs)
        given = [wanted.usable(x, device) for wanted, x in zip(self._inputs, inputs, strict=True)]
        if device == torch._C._cuda_getDevice():
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

        def replay(kept: object = (self, inputs)) -> list[torch.Tensor]:
            graph.replay()  # of modules that the executable has loaded, on tensors that it reads
            return results

        return replay

    def _device(self, inputs: Sequence[torch.Tensor]) -> int:
        if not inputs:
            return torch.cuda.current_device()
        if not inputs[0].is_cuda:
            raise InvalidInput(f"input {self._inputs[0].name}", f"is on {inputs[0].device}, not on a CUDA device")
        return inputs[0].get_device()

    def _run(self, device: int, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with self._lock:
            loaded = self._loaded.get(device)
            if loaded is None:
                loaded = self._loaded[device] = _Loaded(self.program, device)
            return loaded.run(given)


class _Loaded:
    """The program on one device.

    A call fills one table of addresses: inputs, outputs, then parts of the arena (temps and scratch), then counters (zeroed
    scratch).  Launches know their arguments by place in that table.
    """

    def __init__(self, program: Program, device: int) -> None:
        _check_arch(program.arch, device)
        self.device = torch.device("cuda", device)
        self.inputs = len(program.inputs)
        self.places = {b.name: i for i, b in enumerate(program.inputs)}
        self.outputs: list[tuple[torch.Size, torch.dtype, int | None]] = []  # and the input that it is a copy of
        self.results: list[tuple[int, torch.Size]] = []  # which output, seen in which shape
        self._place_outputs(program)
        first = self.inputs + len(self.outputs)
        self.arena = _Layout(first)
        for b in program.temps:
            if b.name not in self.places:
                self.places[b.name] = self.arena.add(prod(b.shape) * itemsize(b.dtype))
        scratch = [{p.name: self._own(p) for p in launch.kernel.params if p.kind == "scratch"} for launch in program.launches]
        self.counters = _Layout(self.arena.end)
        zeroed = [{p.name: self.counters.add(_size(p)) for p in launch.kernel.params if p.kind == "zeroed"} for launch in program.launches]
        self.launches = [
            _Bound(launch, {n: self.places[b] for n, b in launch.arguments.items()} | own | zero)
            for launch, own, zero in zip(program.launches, scratch, zeroed, strict=True)
        ]
        self.zeros: dict[int, torch.Tensor] = {}  # by stream: kernels on two streams must not share counters
        self.table: list[int] = []  # that the launches' arguments are packed for

    def _place_outputs(self, program: Program) -> None:
        numbers: dict[str, int] = {}
        for b in program.outputs:
            if b.name not in numbers:
                numbers[b.name] = len(self.outputs)
                source = self.places.get(b.name)
                self.outputs.append((torch.Size(b.shape), torch_dtype(b.dtype), source))
                self.places.setdefault(b.name, self.inputs + numbers[b.name])
            self.results.append((numbers[b.name], torch.Size(b.shape)))

    def _own(self, p: ir.Param) -> int:
        return self.arena.add(_size(p))

    def run(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        stream: int = torch._C._cuda_getCurrentRawStream(self.device.index)
        made = [
            torch.empty(shape, dtype=dtype, device=self.device) if source is None else given[source].clone()
            for shape, dtype, source in self.outputs
        ]
        table = [x.data_ptr() for x in given]
        table += [x.data_ptr() for x in made]
        if self.arena.size:
            # Held by this frame until all is launched; torch's allocator hands it on in stream order.
            arena = torch.empty(self.arena.size, dtype=torch.uint8, device=self.device)
            table += self.arena.addresses(arena)
        if self.counters.size:
            zeros = self._zeros(stream)
            table += self.counters.addresses(zeros)
        if table != self.table:
            self.table = table
            for bound in self.launches:
                bound.pack(table)
        for bound in self.launches:
            bound.launch(stream)
        return [made[i] if made[i].shape == shape else made[i].view(shape) for i, shape in self.results]

    def _zeros(self, stream: int) -> torch.Tensor:
        found = self.zeros.get(stream)
        if found is None:
            found = torch.zeros(self.counters.size, dtype=torch.uint8, device=self.device)
            # Inside a capture this is a node of the graph, whose memory pool must not serve calls outside of it.
            if not torch.cuda.is_current_stream_capturing():
                self.zeros[stream] = found
        return found


class _Layout:
    """Parts of one allocation; ``first`` is the place of the first part in the table of addresses."""

    def __init__(self, first: int) -> None:
        self.end, self.size = first, 0
        self.offsets: list[int] = []

    def add(self, size: int) -> int:
        """The place of a new part."""
        self.offsets.append(self.size)
        self.size += -(-max(size, 1) // _ARENA_ALIGN) * _ARENA_ALIGN
        self.end += 1
        return self.end - 1

    def addresses(self, memory: torch.Tensor) -> list[int]:
        base = memory.data_ptr()
        return [base + offset for offset in self.offsets]


def _size(p: ir.Param) -> int:
    return p.size * itemsize(p.dtype)


class _Bound:
    """A launch with its function and packed arguments: one address a parameter, then one descriptor a tensor map."""

    def __init__(self, launch: Launch, places: Mapping[str, int]) -> None:
        kernel = launch.kernel
        names = [p.name for p in kernel.params]
        self.places = [places[name] for name in names]
        self.slots = (ctypes.c_uint64 * max(1, len(names)))()
        where = [ctypes.addressof(self.slots) + 8 * i for i in range(len(names))]
        self.maps = [tensor_map.Descriptor(m, names.index(m.buffer)) for m in kernel.maps]
        self.packed = (ctypes.c_void_p * max(1, len(where) + len(self.maps)))(*where, *(m.address for m in self.maps))
        shared = dynamic_shared(kernel)
        self.function = _function(launch, shared)  # CuPy's object, which keeps the module
        self.shape = (self.function.ptr, *kernel.grid, kernel.threads, 1, 1, shared)
        self.launch_kernel = _driver().launchKernel
        self.pointer = ctypes.addressof(self.packed)

    def pack(self, table: Sequence[int]) -> None:
        for i, place in enumerate(self.places):
            self.slots[i] = table[place]
        for m in self.maps:
            m.point_at(self.slots[m.slot])

    def launch(self, stream: int) -> None:
        self.launch_kernel(*self.shape, stream, self.pointer, 0)


def _driver() -> Any:
    from cupy_backends.cuda.api import driver  # imported here: programs are compiled where there is no CuPy

    return driver


def _function(launch: Launch, shared: int) -> Any:
    """Loaded into the current device's context."""
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
