"""What families ask about a kernel: its axes by role, what is contiguous, how much there is of everything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from emmy_eq import index as ix
from emmy_eq.codegen import tile_ir
from emmy_eq.codegen.lower.access import flat, strides
from emmy_eq.codegen.tile_ir import Axes, Fold, Tile, Value
from emmy_eq.loop_ir import Buffer, Carry, Load, Store
from emmy_eq.ops import itemsize


@dataclass(frozen=True)
class Facts:
    """A tree (its schedule row does not matter) and what follows from it."""

    tile: Tile

    @cached_property
    def axes(self) -> Axes:
        return tile_ir.axes(self.tile.body)

    @cached_property
    def extents(self) -> dict[str, int]:
        return {a.name: a.extent for a in (*self.axes.outer, *self.axes.folded)}

    @cached_property
    def known(self) -> dict[str, Value]:
        return tile_ir.values(self.tile.body)

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        return tuple(s for s in tile_ir.walk(self.tile.body) if isinstance(s, Fold) and not s.is_map)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        return tuple(tile_ir.kind(f, self.known) for f in self.folds)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        return tuple(s for s in tile_ir.walk(self.tile.body) if isinstance(s, Load))

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        return tuple(s for s in tile_ir.walk(self.tile.body) if isinstance(s, Store))

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        return {b.name: b for b in (*self.tile.inputs, *self.tile.outputs)}

    @cached_property
    def itemsize(self) -> int:
        """Bytes of the narrowest element that is read or written in bulk."""
        sizes = [(prod(b.shape), itemsize(b.dtype)) for b in self.buffers.values()]
        largest = max((n for n, _ in sizes), default=1)
        return min((size for n, size in sizes if 2 * n >= largest), default=4)

    @cached_property
    def nested(self) -> bool:
        """Whether a fold is inside another."""
        return any(isinstance(s, Fold) for f in self.folds for s in tile_ir.walk((*f.body, *f.observer)))

    def contiguous(self, access: Load | Store) -> str | None:
        """The axis along which neighbouring iterations touch neighbouring elements."""
        offset = ix.simplify(flat(access.index, self.buffers[access.buffer].shape), self._bounds(access))
        return next((name for name, c in strides(offset) if c == 1 and name in self.extents), None)

    def _bounds(self, access: Load | Store) -> dict[str, int]:
        limit = max(self.buffers[access.buffer].shape, default=1)
        return {n: self.extents.get(n, limit) for i in access.index for n in ix.variables(i)}

    @cached_property
    def main_load(self) -> Load | None:
        """The load of the most elements."""
        return max(self.loads, key=lambda s: prod(self.extents[a] for a in self.known[s.name].axes), default=None)

    @cached_property
    def output_axis(self) -> str | None:
        """The axis along which the largest output is written contiguously."""
        sizes = [(prod(self.buffers[s.buffer].shape), self.contiguous(s)) for s in self.stores]
        return max(sizes, key=lambda p: p[0])[1] if sizes else None

    def points(self, names: tuple[str, ...]) -> int:
        return prod(self.extents[n] for n in names)

    def carries(self) -> tuple[Carry, ...]:
        return tuple(c for f in self.folds for c in f.carries)


def floor_power(n: int) -> int:
    """The largest power of two up to ``n`` (at least 1)."""
    return 1 << max(n, 1).bit_length() - 1


def ceil_power(n: int) -> int:
    """The smallest power of two from ``n`` on."""
    return 1 << max(n - 1, 0).bit_length()


def exact(n: int, most: int) -> int:
    """The largest divisor of ``n`` up to ``most``, so that no step is partly empty; ``most`` where that is twice as large."""
    found = max(d for d in range(1, most + 1) if n % d == 0)
    return found if 2 * found >= min(n, most) else min(n, most)


def vector(extent: int, size: int, most: int = 16) -> int:
    """Elements of one access of up to 16 bytes that divide ``extent``."""
    v = min(most, 16 // size)
    while v > 1 and extent % v:
        v //= 2
    return v
