"""Hypothesis strategies: axes, values, whole programs, and the schedule rows of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st

from emmy_eq.ops import DTYPES
from emmy_eq.testing.draft import Draft
from emmy_eq.testing.shaped import shaped
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

# What the first inputs are made of, most common first.
MIXES = (("f32",), ("f32", "f32", "i64", "bool"), ("bf16", "f32"), ("f16",), ("f32", "f16", "bf16"), ("i32", "i64", "bool", "u8"), ("f64",))


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
def programs(draw: st.DrawFn, steps: int = 10, special: bool = False) -> Source:
    """A tensor program of up to ``steps`` values beyond its inputs, one to three results.

    Without ``special`` every value is finite and moderate, and jumps (comparisons, rounding, positions of the best) are taken of exact
    values alone, so that rounding cannot change a result by much.
    """

    def integer(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    mix = draw(st.sampled_from(MIXES))
    extents = draw(st.sampled_from((SMALL, SMALL, ODD, EMPTY)))
    draft = Draft(integer, special, mix, extents)
    draft.new_input()
    for _ in range(steps):
        if not draw(_step(draft)):
            break
    if not draft.body:
        draft.add("x0 * 1", draft.pool[0].exact, 1)
    return draft.source(draft.unread()[-3:])


@st.composite
def _step(draw: st.DrawFn, draft: Draft) -> bool:
    """One more value; False at the end.  A strategy of its own, so that hypothesis can leave a step out as a whole."""
    kind = draw(st.integers(0, 11))
    if kind > 9:
        draft.shaped(*draft.choose(tuple(shaped().values())))
    elif kind:
        draft.row(draft.choose(draft.possible(rows())))
    return kind > 0


def schedules(kernel: loop_ir.Kernel, target: Target) -> st.SearchStrategy[Schedule]:
    """One of the rows that some family proposes for ``kernel`` on ``target``; a later one may be refused by `lower`."""
    from emmy_eq.codegen.families import schedules as proposed

    found: list[Any] = proposed(kernel, target)
    return st.sampled_from(found)
