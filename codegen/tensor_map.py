"""TMA descriptors (CUtensorMap), made by the driver for a `TensorMap` of Kernel IR."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.errors import EmmyError
from emmy_eq.ops import itemsize

_SIZE, _ALIGN = 128, 64  # bytes (CUDA driver API, CUtensorMap)
_DTYPE = {"u8": 0, "i32": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}  # CUtensorMapDataType
_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
_L2_256B = 3  # CUtensorMapL2promotion


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


class Descriptor:
    """The descriptor of ``map`` in memory at ``address``; ``slot`` is the kernel argument that it describes."""

    def __init__(self, map: ir.TensorMap, slot: int) -> None:
        self.map, self.slot = map, slot
        self._memory = (ctypes.c_uint8 * (_SIZE + _ALIGN))()
        self.address = -(-ctypes.addressof(self._memory) // _ALIGN) * _ALIGN
        self._at = 0

    def point_at(self, base: int) -> None:
        """Describe the tensor in the buffer at device address ``base``."""
        if base == self._at:
            return
        m, rank, size = self.map, len(self.map.shape), itemsize(self.map.dtype)
        shape = (ctypes.c_uint64 * rank)(*m.shape)
        strides = (ctypes.c_uint64 * max(1, rank - 1))(*(s * size for s in m.strides[1:]))
        box, steps = (ctypes.c_uint32 * rank)(*m.box), (ctypes.c_uint32 * rank)(*[1] * rank)
        status = _driver().cuTensorMapEncodeTiled(
            ctypes.c_void_p(self.address), _DTYPE[m.dtype], rank, ctypes.c_void_p(base + m.start * size), shape, strides, box, steps,
            0, _SWIZZLE[m.swizzle], _L2_256B, 0,
        )  # fmt: skip
        if status:
            raise EmmyError(f"The driver refuses the tensor map {m.name} (error {status}): {m}.")
        self._at = base
