"""Torch IR -> Tensor IR: one row, a small function, per torch operation.

A row is called with a `Builder` and the operation's arguments by name, and returns the result's `Value`.  Every
argument is honoured, or refused with `Unsupported` naming it.
"""

from __future__ import annotations

from emmy_eq.lower.builder import Builder, Value
from emmy_eq.lower.program import infer, lower
from emmy_eq.lower.row import Row
from emmy_eq.lower.table import table

__all__ = ["Builder", "Row", "Value", "infer", "lower", "table"]
