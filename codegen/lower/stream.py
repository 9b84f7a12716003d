"""Which buffers are read once by the whole grid, so that their lines need not stay in cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from emmy_eq.codegen.lower.threads import Digits
from emmy_eq.codegen.tile_ir import Fold, Tile, Value, axes, walk
from emmy_eq.loop_ir import Load


def read_once(tile: Tile, known: Mapping[str, Value], digits: Digits) -> frozenset[str]:
    """Buffers with one load, which varies with every axis and is evaluated in one pass."""
    roles = axes(tile.body)
    everything = {a.name for a in (*roles.outer, *roles.folded) if a.extent > 1}
    walks = Counter(a.name for s in walk(tile.body) if isinstance(s, Fold) for a in s.axes)
    again = {a for a, n in walks.items() if n > 1 and digits.steps[a] != 1}
    loads = {v.name: v for v in known.values() if isinstance(v.stmt, Load)}
    count = Counter(v.stmt.buffer for v in loads.values() if isinstance(v.stmt, Load))
    return frozenset(
        v.stmt.buffer
        for v in loads.values()
        if isinstance(v.stmt, Load) and count[v.stmt.buffer] == 1 and not v.args and set(v.axes) >= everything and not again & set(v.axes)
    )
