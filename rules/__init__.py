"""What is known: the rewrite rules, a family a file.

Read in order: `order` (canonical spellings), `lattice` (greatest, least, chosen), `casts`, `structure` (where values are stored),
`products`, `elementary` (exponentials and roots), `reductions`, `twists`.
"""

from __future__ import annotations

if __name__ != "emmy_eq.rules":
    raise ImportError("import emmy_eq.rules, not rules")

from functools import cache

from emmy_eq.rule import Rounding, Rule
from emmy_eq.rules import casts, elementary, lattice, order, products, reductions, structure, twists

ACCURACY = {"strict": Rounding.EXACT, "default": Rounding.CONTRACTS, "fast": Rounding.APPROXIMATES}


@cache
def library() -> dict[str, Rule]:
    """Every rule by name."""
    rows = (r for family in (order, lattice, casts, structure, products, elementary, reductions, twists) for r in family.rules())
    return {row.name: row for row in rows}


def active(accuracy: str = "default") -> tuple[Rule, ...]:
    """The rules that an accuracy contract admits."""
    return tuple(r for r in library().values() if r.rounding <= ACCURACY[accuracy])
