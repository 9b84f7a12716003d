"""The lowering table: every torch operation that there is a row for."""

from __future__ import annotations

from functools import cache

from emmy_eq.lower import activations, attention, create, elementwise, losses, norms, order, products, reductions, select, views, windows
from emmy_eq.lower.row import Row


@cache
def table() -> dict[str, Row]:
    """Torch operation (``aten.softmax.int``) -> row."""
    out: dict[str, Row] = {}
    for module in (elementwise, activations, views, create, reductions, norms, products, attention, select, order, windows, losses):
        out |= module.rows()
    return out
