"""Persistent blocks: each takes one tile of results after another, so that operands of the next come while results of one leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower.builder import Builder, literal
from emmy_eq.index import Idx, var

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine


@dataclass(frozen=True, slots=True)
class Rounds:
    """``tiles`` dealt to ``blocks``: in its n-th round (``round``) block bx takes tile bx + n * blocks (``number``).  ``turning``: every
    other round the other way round, where work falls from tile to tile."""

    round: str
    number: str
    tiles: int
    blocks: int
    turning: bool

    @property
    def stop(self) -> Idx:
        back = self.turning and self.tiles // self.blocks % 2 == 1
        return ((var("bx") if back else var("bx") * -1 + (self.blocks - 1)) + self.tiles) // self.blocks

    @property
    def most(self) -> int:
        return -(-self.tiles // self.blocks)

    @property
    def first(self) -> k.Let:
        """The number of the tile."""
        there, back = var("bx"), var(self.round) % 2 * (var("bx") * -2 + (self.blocks - 1))
        return k.Let(self.number, "i32", "index", (), (there + back if self.turning else there) + var(self.round) * self.blocks)


@dataclass(frozen=True, slots=True)
class Passed:
    """The turns that tiles before took, modulo ``cycle``, where tiles differ in their number: ``start`` goes before all rounds, ``first``
    before what counts on from ``turns``."""

    count: str
    before: str
    cycle: int

    @staticmethod
    def fresh(b: Builder, cycle: int) -> Passed:
        made = Passed(b.fresh("passed"), b.fresh("before"), cycle)
        b.extents[made.before] = cycle
        return made

    @property
    def start(self) -> k.Declare:
        return k.Declare(self.count, "i32", literal("i32", 0))

    @property
    def first(self) -> k.Let:
        return k.Let(self.before, "i32", "index", (), var(self.count) % self.cycle)

    @property
    def turns(self) -> Idx:
        return var(self.before)

    def add(self, turns: Idx) -> tuple[k.Stmt, ...]:
        """After the ``turns`` of a tile."""
        name = f"{self.before}_next"
        return k.Let(name, "i32", "index", (), self.turns + turns), k.Set(self.count, "i32", "mov", (name,))


def around(rounds: Rounds | None, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """``body``, of warps beside those that compute, in every round."""
    return body if rounds is None else (k.For(rounds.round, ix.const(0), rounds.stop, 1, (rounds.first, *body)),)


def run(e: Engine) -> None:
    """The whole of the kernel's body, in every round."""
    if e.rounds is None:
        e.run(e.tile.body)
        return
    b, r = e.b, e.rounds
    b.extents[r.number] = r.tiles
    with b.loop(r.round, r.most, 1, r.stop, also=(r.number,)):
        b.emit(r.first)
        e.run(e.tile.body)
