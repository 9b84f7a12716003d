"""Text for people: aligned tables, and numbers with a unit; lists are read too."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[-+]?\d[\d.]*(e[-+]?\d+)?( [kMGTPE]?(B|Hz|FLOP|B/s|FLOP/s|s)?)?")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: text to the left, numbers to the right.  No trailing blanks, no trailing newline."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)).rstrip()

    return "\n".join([line(head), line(["-" * w for w in widths]), *map(line, rows)])


def _is_number(cell: str) -> bool:
    return cell in ("", "-", "inf") or _NUMBER.fullmatch(cell) is not None


def items(text: str) -> list[str]:
    """What stands between commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def count(n: int, noun: str) -> str:
    """``count(1, "plan")`` is ``1 plan``, ``count(2, "plan")`` is ``2 plans``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def quantity(value: float, unit: str = "") -> str:
    """Three significant digits with a decimal prefix: ``quantity(4.3e9, "FLOP")`` is ``4.29 GFLOP``."""
    for factor, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def binary(value: float) -> str:
    """Bytes with a binary prefix: ``binary(4096)`` is ``4 KiB``."""
    for factor, prefix in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if abs(value) >= factor:
            return f"{value / factor:.{4 if abs(value) >= 1000 * factor else 3}g} {prefix}B"
    return f"{value:.0f} B"


def some(names: Sequence[str], most: int) -> str:
    """``some(("a", "b", "c"), 2)`` is ``a, b and 1 more``."""
    left = len(names) - most
    return ", ".join(names) if left <= 0 else f"{', '.join(names[:most])} and {left} more"
