"""The rule catalogue, docs/rules.md: written by ``emmy-eq rules catalogue > docs/rules.md`` from the rules themselves."""

from __future__ import annotations

from emmy_eq.rule import Rounding, Rule
from emmy_eq.rules import ACCURACY, active, library
from emmy_eq.rules.certificates import splits
from emmy_eq.verify.laws import laws

_HEAD = """# The rules

{count} rewrite rules, as `emmy-eq rules catalogue > docs/rules.md` writes them down; a test fails where this page is stale. In a formula
`a`, `b`, ... are values, `k`, `j`, ... sets of axes, `sum[k](v)` is a reduction, `free(v)` the axes that v depends on; `->` rewrites in
one direction, `=` in both. A rule that mends may have a value where its left side is NaN. [How to add a rule](add_a_rule.md) takes one
from an idea to a faster kernel.
"""

_SPLITS = """## Splits of folds

That a fold over k is the fold over blocks of k of the folds within each block is a law of the fold, certified by `emmy-eq rules check` as a
rule is, and no rewrite: a schedule row splits a fold over registers, threads and blocks (flash-decoding is attention so split), and the
row is refused where the fold has no certificate, as sums in order have none.
"""

_CLASSES = {
    Rounding.EXACT: "Bit for bit the same result, NaN and -0.0 included.",
    Rounding.REASSOCIATES: "The same real number, computed in another order.",
    Rounding.CONTRACTS: "Fewer roundings.",
    Rounding.APPROXIMATES: "A bounded error.",
}


def page() -> str:
    """The page as Markdown: a section a rounding class, a paragraph a rule, in the library's order."""
    rules = tuple(library().values())
    parts = [_HEAD.format(count=len(rules))]
    for rounding, meaning in _CLASSES.items():
        members = [r for r in rules if r.rounding is rounding]
        if members:
            least = next(accuracy for accuracy, most in ACCURACY.items() if most >= rounding)
            parts.append(f"## {rounding.name}\n\n{meaning} From accuracy `{least}` on.\n")
            parts += map(_entry, members)
    return "\n".join([*parts, _SPLITS, *map(_split, splits().items())])


def _split(row: tuple[str, str]) -> str:
    fold, rule = row
    stated = (library()[rule],) if rule in library() else laws(fold)
    return f"**{fold}** ({rule}, {max(law.rounding for law in stated).name}). {' '.join(law.doc for law in stated)}\n"


def _entry(rule: Rule) -> str:
    marks = ("; mends" if rule.mends else "") + ("" if rule in active("fast") else "; not active")
    return f"**{rule.name}** ({rule.phase}, {rule.source.partition(':')[0]}{marks}). {' '.join(rule.doc.split())}\n\n    {rule}\n"
