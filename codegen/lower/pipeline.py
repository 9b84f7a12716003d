"""Operands in several buffers: later steps' operands are on their way while this step computes.

Path ``shared``: the next step's operands are loaded into registers, then stored to the other buffer.  Path ``async``: cp.async
brings them, several steps ahead; what it cannot copy (prologues, short or crooked rows) takes the way through registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import stage
from emmy_eq.codegen.lower.layout import Scope
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.index import Idx, var

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed


@dataclass(slots=True)
class Pipeline:
    """The operands of one fold that have ``depth`` buffers in shared memory; ``tiles`` is empty where the row asks for one."""

    placed: list[Placed]
    folded: frozenset[str]
    depth: int
    tiles: dict[str, SharedTile] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of a buffer
    copied: tuple[str, ...] = ()  # by cp.async
    step: Idx | None = None
    writers: dict[str, Scope] | None = None

    @staticmethod
    def start(e: Engine, placed: list[Placed], operands: tuple[str, ...], folded: frozenset[str]) -> Pipeline:
        """Fill the buffers of the first steps, all but the last."""
        stepped = {p.map.axis for p in placed if p.steps != 1}
        out = Pipeline(placed, folded, e.row.stage.depth)
        if out.depth < 2:
            return out
        names = [n for n in operands if stepped & set(e.known[n].axes) and not stage.bound_here(e, n, folded)]
        with e.bound(e.maps_at(placed, ix.const(0))):
            for name in names:
                tile = stage.allocate(e, name, e.home, folded, out.depth)
                out.sizes[name] = e.b.shared[-1].size // out.depth
                e.doubled.add(tile.array)
                out.tiles[name] = tile
            if e.row.stage.path == "async":
                out.copied = tuple(n for n in names if stage.copies(e, n, stage.writer(e, n, e.home, folded)))
        if out.copied and len(e.b.levels) > 1:
            e.b.emit(k.Barrier())  # an outer loop's iteration before may still read the buffers
        for step in range(out.depth - 1):
            with e.bound(e.maps_at(placed, ix.const(step))):
                out._fill(e, ix.const(step))
        return out

    def _fill(self, e: Engine, step: Idx) -> None:
        for name in self.tiles:
            if name not in self.copied:
                stage.write(e, self._buffer(name, step, e.home), name, e.home, self.folded)
        self._copy(e, step, {n: stage.writer(e, n, e.home, self.folded) for n in self.copied})

    def _copy(self, e: Engine, step: Idx, writers: dict[str, Scope]) -> None:
        for name in self.copied:
            stage.copy(e, self._buffer(name, step, writers[name]), name, writers[name])
        if self.copied:
            e.b.emit(k.CpAsyncCommit())

    def fetch(self, e: Engine) -> None:
        """Wait for this step's copies; begin those of a later step, and its loads.  Beyond the last they are masked, or read the
        first again."""
        if not self.tiles:
            return
        (self.step,) = [var(n) for n in e.b.levels[-1].variables]
        if self.copied:
            # The barrier shows every thread what the others copied, and that all have read the buffer that is copied to next.
            e.b.emit(k.CpAsyncWait(self.depth - 2))
            e.b.emit(k.Barrier())
        ahead = self.step + (self.depth - 1)
        scope = {**e.home, **e.maps_at(self.placed, ahead)}
        self.writers = {name: stage.writer(e, name, scope, self.folded) for name in self.tiles}
        self._copy(e, ahead, self.writers)
        for name, writer in self.writers.items():
            if name not in self.copied:
                for load in stage.loads(e, name):
                    e.value(load.name, writer)

    def tile(self, e: Engine, name: str) -> SharedTile:
        """The tile of this step."""
        if name not in self.tiles:
            return stage.filled(e, name, e.home, self.folded)
        assert self.step is not None
        return self._buffer(name, self.step, e.home)

    def lend(self, e: Engine, name: str) -> None:
        """A fold inside this step finds its operand here."""
        if name in self.tiles:
            e.b.remember(stage.place(e, name, e.home), self.tile(e, name))

    def _buffer(self, name: str, step: Idx, scope: Scope) -> SharedTile:
        tile = self.tiles[name]
        return replace(tile, origin=tuple(scope[a].base for a in tile.axes), start=step % self.depth * self.sizes[name])

    def advance(self, e: Engine) -> None:
        """Store what was loaded for a later step."""
        if self.step is None or self.writers is None:
            return
        for name, writer in self.writers.items():
            if name not in self.copied:
                tile = self._buffer(name, self.step + (self.depth - 1), writer)
                stage.put(e, tile, stage.value(e, name, writer, self.folded), writer)

    def drain(self, e: Engine) -> None:
        """After the last step: the copies begun for steps that do not exist."""
        if self.copied:
            e.b.emit(k.CpAsyncWait(0))
