"""Placeholder."""

from __future__ import annotations

from emmy_eq.lower.row import Row


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {}
