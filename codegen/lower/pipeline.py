"""Double buffering: a step's operands are loaded into registers while the step before computes, then stored to the other half."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emmy_eq.codegen.lower import stage
from emmy_eq.codegen.lower.layout import AxisMap, Scope
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.index import Idx, var

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed


@dataclass(slots=True)
class Pipeline:
    """The operands of one fold that have two halves of shared memory; ``tiles`` is empty where the row asks for one."""

    placed: list[Placed]
    folded: frozenset[str]
    tiles: dict[str, SharedTile]
    sizes: dict[str, int]  # of a half
    step: Idx | None = None
    writers: dict[str, Scope] | None = None

    @staticmethod
    def start(e: Engine, placed: list[Placed], operands: tuple[str, ...], folded: frozenset[str]) -> Pipeline:
        """Fill the first half."""
        stepped = {p.map.axis for p in placed if p.steps != 1}
        out = Pipeline(placed, folded, {}, {})
        if e.row.stage.depth < 2:
            return out
        with e.bound({p.map.axis: p.map for p in placed}):
            for name in operands:
                if stepped & set(e.known[name].axes) and not stage.bound_here(e, name, folded):
                    tile = stage.allocate(e, name, e.home, folded, 2)
                    out.sizes[name] = e.b.shared[-1].size // 2
                    e.doubled.add(tile.array)
                    stage.write(e, tile, name, e.home, folded)
                    out.tiles[name] = tile
        return out

    def fetch(self, e: Engine) -> None:
        """Issue the loads of the next step; beyond the last they are masked, or read the first again."""
        if not self.tiles:
            return
        (self.step,) = [var(n) for n in e.b.levels[-1].variables]
        scope = {**e.home, **self.maps(e, self.step + 1)}
        self.writers = {name: stage.writer(e, name, scope, self.folded) for name in self.tiles}
        for name, writer in self.writers.items():
            for load in stage.loads(e, name):
                e.value(load.name, writer)

    def maps(self, e: Engine, step: Idx) -> dict[str, AxisMap]:
        return e.maps_at(self.placed, step)

    def tile(self, e: Engine, name: str) -> SharedTile:
        """The tile of this step."""
        if name not in self.tiles:
            return stage.filled(e, name, e.home, self.folded)
        assert self.step is not None
        return self._half(name, self.step, e.home)

    def _half(self, name: str, step: Idx, scope: Scope) -> SharedTile:
        tile = self.tiles[name]
        return replace(tile, origin=tuple(scope[a].base for a in tile.axes), start=step % 2 * self.sizes[name])

    def advance(self, e: Engine) -> None:
        """Store what was fetched for the next step."""
        if self.step is None or self.writers is None:
            return
        for name, writer in self.writers.items():
            tile = self._half(name, self.step + 1, writer)
            stage.put(e, tile, stage.value(e, name, writer, self.folded), writer)
