"""What is known: the rewrite rules, a family a file."""

from __future__ import annotations

if __name__ != "emmy_eq.rules":
    raise ImportError("import emmy_eq.rules, not rules")
