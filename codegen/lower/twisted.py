"""Twisted folds whose key is made by a product of its own (attention), by warpgroups: both products of a step at once.

    scores of the first step, and their weights
    for each later step: begin its scores; begin to add the products of the weights at hand; its weights, as soon as its scores are there
    add the products of the last weights

So tensor cores multiply while the weights are computed (FlashAttention-3: Shah et al. 2024, arXiv:2407.08608).  The first is the last
step of the axis: what a mask or the axis's end cuts lies there, and most steps are in a loop without any test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import matrix, skip, tma, wgmma
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import Fragment
from emmy_eq.codegen.lower.matrix import Product
from emmy_eq.codegen.lower.persistent import Passed
from emmy_eq.codegen.lower.states import Twisted
from emmy_eq.codegen.lower.tma import Stream
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.contract import Contraction

ZERO = ix.const(0)


def emit(c: Contraction) -> None:
    """All steps of ``c``, whose sums are then complete."""
    tma.once(c.e)
    _check(c)
    with c.e.bound({**{p.map.axis: p.map for p in c.placed}, **c.within}):
        fold = _Twisted(c)
    fold.ask()
    with fold.counted():
        fold.first()
        edge = c.e.b.simplify((fold.last - fold.clear).max(0))
        fold.steps(ZERO, edge, fold.most, frozenset())
        fold.steps(edge, fold.last, c.e.b.bounds(fold.clear)[1], fold.sure)
        fold.end()


def _check(c: Contraction) -> None:
    inner = {r for f, over in zip(c.f.carries, c.plan.inner, strict=True) for r, x in zip(f.results, over, strict=True) if x}
    held = all(p.held for p in c.plan.matrix.values()) and not any(p.held for p in c.scores.values())
    one = len(c.states) == len(c.placed) == c.e.digits.split == 1 and isinstance(c.states[0], Twisted)
    if not (one and held and inner == set(c.plan.matrix)):
        raise Unsupported("schedule", "the copy engine for a fold inside another, but for one weighted sum under a product")


class _Twisted:
    """``last``: turns but the first; turn n takes step ``last`` - n.  ``clear``: of the first steps, which need no mask ``sure``."""

    def __init__(self, c: Contraction) -> None:
        self.c, self.e = c, c.e
        e, b, axis = c.e, c.e.b, c.placed[0].map.axis
        self.most = c.placed[0].steps
        stop = skip.stop(e, c.f, c.placed)
        self.last = b.simplify((ix.const(self.most) if stop is None else stop).max(1) - 1)
        self.clear, self.sure = skip.clear(e, c.f, c.placed)
        self.scores = {r: _declare(c, r) for r in c.scores}
        self.inner = wgmma.together(e, [(p, self.scores[r]) for r, p in c.scores.items()])
        self.outer = wgmma.together(e, c.products())
        self.held = {p.left: _registers(c, p) for p in c.plan.matrix.values()}
        sides = dict.fromkeys(side for g in self.inner for side in ((g[0][0].left,), tuple(p.right for p, _ in g)))
        moving = [s for s in sides if any(axis in e.known[x].axes for x in s)]
        depth = min(e.row.stage.depth, self.most)
        self.fixed = Stream.start(e, [s for s in sides if s not in moving], 1)
        self.keys = Stream.start(e, moving, depth)
        self.values = Stream.start(e, [tuple(p.right for p, _ in g) for g in self.outer], depth)
        self.cycle = 2 * depth  # turns after which buffers and phases are as before
        self.tile, self.passed = e.turn(ZERO, 1), ZERO

    def ask(self) -> None:
        """What the producer warp does."""
        e, turn = self.e, var(self.e.b.fresh("ahead"))
        e.b.extents[turn.name] = self.most
        made = Passed.fresh(e.b, self.cycle) if e.rounds is not None else None
        number = turn if made is None else made.turns + turn
        with e.bound({**e.maps_at(self.c.placed, self.last - turn), **self.c.within}):
            asks = (*self.keys.asks(e, number), *self.values.asks(e, number))
            body = [*self.fixed.asks(e, self.tile), k.For(turn.name, ZERO, e.b.simplify(self.last + 1), 1, asks)]
        if made is not None:
            e.producer.carried.append(made.start)
            body = [made.first, *body, *made.add(e.b.simplify(self.last + 1))]
        e.producer.body += body

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Turns count on from those of a persistent block's tiles before."""
        b = self.e.b
        if self.e.rounds is None:
            yield
            return
        made = Passed.fresh(b, self.cycle)
        with b.at(0):
            b.emit(made.start)
        b.emit(made.first)
        b.here(made.before)
        self.passed = made.turns
        yield
        for s in made.add(b.simplify(self.last + 1)):
            b.emit(s)

    def first(self) -> None:
        """The weights of the first turn."""
        self.fixed.wait(self.e, self.tile)
        with self.e.bound(self.c.within), self.e.bound(self.e.maps_at(self.c.placed, self.step(self.last, self.most))):
            self.keys.wait(self.e, self.passed)
            self.begin(ZERO)
            self.weigh(ZERO, 0)
            self.hold()

    def steps(self, first: Idx, stop: Idx, most: int, sure: frozenset[str]) -> None:
        """The turns after ``first`` up to ``stop``, of steps below ``most``, with the products of the weights before each."""
        e, b = self.e, self.e.b
        if b.bounds(stop - first)[1] <= 0:
            return
        turn = var(b.fresh("turn"))
        with b.loop(turn.name, self.most, 1, stop, first):
            step = self.step(self.last - turn - 1, most)
            with e.bound(self.c.within), e.bound(e.maps_at(self.c.placed, step)), e.given(sure):
                self.keys.wait(e, self.passed + turn + 1)
                self.begin(turn + 1)
                self.add(turn)
                factor = self.weigh(turn + 1, 1)
                self.finish()
                self.values.release(e, self.passed + turn)
                self.rescale(factor)
                self.hold()

    def end(self) -> None:
        e = self.e
        if e.rounds is not None:
            self.fixed.release(e, self.tile)
        with e.bound({p.map.axis: p.map for p in self.c.placed}):
            self.add(self.last)
        self.finish()
        if e.rounds is not None:
            self.values.release(e, self.passed + self.last)

    def step(self, x: Idx, most: int) -> Idx:
        """A register of ``x``, which is below ``most``; never known to be one number, so that its loop's values stay there."""
        b = self.e.b
        if b.bounds(x)[0] == b.bounds(x)[1]:
            return b.simplify(x)
        name = b.fresh("step")
        b.emit(k.Let(name, "i32", "index", (), b.simplify(x)))
        b.extents[name] = max(most, 2)
        b.here(name)
        return var(name)

    def begin(self, turn: Idx) -> None:
        """Scores, in place of those before."""
        tiles = {n: s.tile(n, t) for s, t in ((self.fixed, self.tile), (self.keys, self.passed + turn)) for n in s.tiles}
        wgmma.multiply(self.e, self.inner, tiles, anew=True)

    def add(self, turn: Idx) -> None:
        """Products of the weights at hand."""
        self.values.wait(self.e, self.passed + turn)
        wgmma.multiply(self.e, self.outer, {n: self.values.tile(n, self.passed + turn) for n in self.values.tiles}, self.held)

    def weigh(self, turn: Idx, running: int) -> Fragment:
        """The weights of scores, while ``running`` groups of later products go on; by how much sums before them are rescaled."""
        e, c = self.e, self.c
        e.b.emit(k.WgmmaWait(running, _names(self.scores.values())))
        self.keys.release(e, self.passed + turn)
        for r, frag in self.scores.items():
            e.bind(r, e.home, frag)
        ((carry, state, acc, inner),) = c.parts()
        assert isinstance(state, Twisted)
        return c.twist(carry, state, acc, inner, {p.map.axis: e.home[p.map.axis] for p in c.placed})

    def rescale(self, factor: Fragment) -> None:
        ((_, _, acc, inner),) = self.c.parts()
        self.c.rescale(acc, inner, factor)

    def hold(self) -> None:
        """The weights as left operands."""
        for p in self.c.plan.matrix.values():
            for n, registers in enumerate(self.held[p.left]):
                for to, one in zip(registers, matrix.held(self.e, p, n)(0)[0], strict=True):
                    self.e.b.emit(k.Set(to, "i32", "mov", (one,)))

    def finish(self) -> None:
        self.e.b.emit(k.WgmmaWait(0, _names([total for _, total in self.c.products()])))


def _declare(c: Contraction, result: str) -> Fragment:
    return c.e.b.declare(literal("f32", 0), "f32", {a: c.e.home[a].count for a in c.e.known[result].axes})


def _registers(c: Contraction, p: Product) -> list[tuple[str, ...]]:
    """Of each step along k, four of a lane."""
    one = {"part": 4}
    found = [c.e.b.declare(literal("i32", 0), "i32", one).atoms for _ in range(c.e.row.split(p.k).regs)]
    return [tuple(map(str, atoms)) for atoms in found]


def _names(frags: Iterable[Fragment]) -> tuple[str, ...]:
    return tuple(str(x) for frag in frags for x in frag.atoms)
