"""What is known: the rewrite rules, a family a file.

Read in order: `order` (canonical spellings), `casts`, `structure` (where values are stored), `products`, `reductions`, `twists`.
"""

from __future__ import annotations

if __name__ != "emmy_eq.rules":
    raise ImportError("import emmy_eq.rules, not rules")

from functools import cache

from emmy_eq.rule import Rounding, Rule
from emmy_eq.rules import casts, order, products, reductions, structure, twists

ACCURACY = {"strict": Rounding.EXACT, "default": Rounding.CONTRACTS, "fast": Rounding.APPROXIMATES}
WAITING = frozenset({"twist_variance"})  # no kernel family has its fold yet


@cache
def library() -> dict[str, Rule]:
    """Every rule by name."""
    rows = (r for family in (order, casts, structure, products, reductions, twists) for r in family.rules())
    return {row.name: row for row in rows}


def active(accuracy: str = "default") -> tuple[Rule, ...]:
    """The rules that an accuracy contract admits."""
    return tuple(r for r in library().values() if r.rounding <= ACCURACY[accuracy] and r.name not in WAITING)
