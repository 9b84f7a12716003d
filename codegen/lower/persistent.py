"""Persistent blocks: each takes one tile of results after another, so that operands of the next come while results of one leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.index import Idx, var

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine


@dataclass(frozen=True, slots=True)
class Rounds:
    """``tiles`` dealt to ``blocks``: in its n-th round (``round``) block bx takes tile bx + n * blocks (``number``)."""

    round: str
    number: str
    tiles: int
    blocks: int

    @property
    def stop(self) -> Idx:
        return (var("bx") * -1 + (self.tiles + self.blocks - 1)) // self.blocks

    @property
    def most(self) -> int:
        return -(-self.tiles // self.blocks)

    @property
    def first(self) -> k.Let:
        """The number of the tile."""
        return k.Let(self.number, "i32", "index", (), var("bx") + var(self.round) * self.blocks)


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
