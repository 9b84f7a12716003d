"""Memory access: scalars, and vectors through the built-in vector types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emmy_eq.codegen.cuda.text import TYPES
from emmy_eq.ops import itemsize

_SHORT = {
    "f32": "float", "f64": "double", "i32": "int", "i64": "longlong", "i16": "short",
    "f16": "ushort", "bf16": "ushort", "i8": "char", "u8": "uchar", "bool": "uchar",
}  # fmt: skip
_UNSIGNED = {1: "unsigned char", 2: "unsigned short"}


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of ``width`` elements; 8 narrow ones travel ``packed`` in 32-bit words, since no built-in type has 8 members."""

    type: str
    dtype: str
    packed: int  # elements a member

    def part(self, vector: str, i: int) -> str:
        """Text of element ``i``."""
        member = f"{vector}.{'xyzw'[i // self.packed]}"
        if self.packed == 1:
            return f"({TYPES[self.dtype]}){member}" if self.dtype == "bool" else member
        size, kind = itemsize(self.dtype), TYPES[self.dtype]
        shift = 8 * size * (i % self.packed)
        word = f"({member} >> {shift})" if shift else member
        return f"({kind}){word}" if kind == _UNSIGNED[size] else f"({kind})({_UNSIGNED[size]}){word}"

    def members(self, values: Sequence[str]) -> list[str]:
        """Texts of the members that hold ``values``."""
        if self.packed == 1:
            return list(values)
        size = itemsize(self.dtype)
        words = [values[i : i + self.packed] for i in range(0, len(values), self.packed)]
        return [" | ".join(f"(unsigned)({_UNSIGNED[size]}){v} << {8 * size * i}" for i, v in enumerate(word)) for word in words]


def vector(dtype: str, width: int) -> Vector:
    if width == 8:
        packed = 4 // itemsize(dtype)
        return Vector(f"uint{8 // packed}", dtype, packed)
    return Vector(f"{_SHORT[dtype]}{width}", dtype, 1)


def read(cache: str, pointer: str) -> str:
    """The value at ``pointer``, an expression of pointer type."""
    return f"__ldcg({pointer})" if cache else f"*({pointer})"


def scalar_pointer(dtype: str, pointer: str) -> str:
    """Where a cached load reads; it knows no bool."""
    return f"(const unsigned char*)({pointer})" if dtype == "bool" else pointer
