"""What is known: the rewrite rules, a family a file.

Read in order: `order` (canonical spellings), `lattice` (greatest, least, chosen), `casts`, `structure` (where values are stored),
`products`, `elementary` (exponentials and roots), `reductions`, `twists`.
"""

from __future__ import annotations

if __name__ != "emmy_eq.rules":
    raise ImportError("import emmy_eq.rules, not rules")

from collections.abc import Iterable
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
    """The library's rules that an accuracy contract admits."""
    return admitted(library().values(), accuracy)


def admitted(rules: Iterable[Rule], accuracy: str) -> tuple[Rule, ...]:
    """Those of ``rules`` that an accuracy contract admits; a contract is about results, so it is no matter who asks for the others."""
    return tuple(r for r in rules if r.rounding <= ACCURACY[accuracy])
