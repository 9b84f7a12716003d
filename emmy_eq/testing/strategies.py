"""Hypothesis strategies: axes, values, whole programs, and the schedule rows of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st

from emmy_eq.ops import DTYPES
from emmy_eq.testing.draft import Draft, Sort
from emmy_eq.testing.shaped import products, shaped
from emmy_eq.testing.sources import Source, tensor
from emmy_eq.testing.steps import rows

if TYPE_CHECKING:
    import torch

    from emmy_eq import loop_ir
    from emmy_eq.codegen.schedule import Schedule
    from emmy_eq.extract.targets import Target
    from emmy_eq.terms import AxisTable

SMALL = (1, 2, 3, 4, 5, 6, 7, 8, 9)
ODD = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 31, 32, 33, 65, 130)
EMPTY = (0, 1, 2, 3, 5)
LONG = (1, 2, 3, 257, 500, 1000, 1025)
TILES = (8, 16, 17, 24, 32, 40, 64, 72, 128)

MIXES = (
    ("f32",), ("f32", "f32", "i64", "bool"), ("bf16", "f32"), ("f16",), ("f32", "f16", "bf16"), ("i32", "i64", "bool", "u8"), ("f64",),
    ("i8", "i16", "i32", "f16"),
)  # fmt: skip
SORTS = (
    *(Sort(mix, extents) for mix in MIXES for extents in (SMALL, SMALL, ODD, EMPTY)),
    *(Sort(mix, LONG, elements=2500, steps=6) for mix in MIXES[:5]),
    # what tensor cores and pipelines of tiles are for
    *(Sort((dtype,), TILES, elements=4500, steps=4, products=5) for dtype in ("bf16", "f16", "f32", "bf16", "f16", "f32")),
)


@st.composite
def axes(draw: st.DrawFn, most: int = 4, extent: int = 5) -> AxisTable:
    """A table of up to ``most`` named axes, extents from 1 to ``extent``."""
    from emmy_eq.terms import AxisTable

    table = AxisTable()
    for n in draw(st.lists(st.integers(1, extent), min_size=1, max_size=most)):
        table.add(n)
    return table


@st.composite
def values(draw: st.DrawFn, shape: tuple[int, ...] | None = None, dtype: str | None = None, special: bool = False) -> torch.Tensor:
    """A tensor of ``shape`` and ``dtype``, any small ones where they are not given; ``special`` strews in infinities, NaN, signed zeros."""
    dtype = draw(st.sampled_from(sorted(DTYPES))) if dtype is None else dtype
    shape = tuple(draw(st.lists(st.sampled_from(SMALL), max_size=3))) if shape is None else shape
    kind = draw(st.sampled_from(("special", "whole") if special else ("normal", "whole")))
    return tensor(shape, dtype, kind, draw(st.integers(0, 9)))


@st.composite
def programs(draw: st.DrawFn, steps: int = 10, special: bool = False, sorts: Sequence[Sort] = SORTS) -> Source:
    """A tensor program of one of the ``sorts``, of up to ``steps`` values beyond its inputs, one to three results.

    Without ``special`` every value is finite and moderate, and jumps (comparisons, rounding, positions of the best) are taken of exact
    values alone, so that rounding cannot change a result by much.
    """

    def integer(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    draft = Draft(integer, special, draw(st.sampled_from(sorts)))
    draft.new_input()
    for _ in range(min(steps, draft.sort.steps)):
        if not draw(_step(draft)):
            break
    if not draft.body:
        draft.add("x0 * 1", draft.pool[0].exact, 1)
    return draft.source(draft.unread()[-3:])


@st.composite
def _step(draw: st.DrawFn, draft: Draft) -> bool:
    """One more value; False at the end.  A strategy of its own, so that hypothesis can leave a step out as a whole."""
    kind = draw(st.integers(0, 11))
    if kind > 11 - draft.sort.products:
        draft.shaped(*draft.choose(tuple(products().values())))
    elif kind > 9 - draft.sort.products:
        draft.shaped(*draft.choose(tuple(shaped().values())))
    elif kind:
        draft.row(draft.choose(draft.possible(rows())))
    return kind > 0


def schedules(kernel: loop_ir.Kernel, target: Target) -> st.SearchStrategy[Schedule]:
    """One of the rows that some family proposes for ``kernel`` on ``target``; a later one may be refused by `lower`."""
    from emmy_eq.codegen.families import schedules as proposed

    found: list[Any] = proposed(kernel, target)
    return st.sampled_from(found)
