"""What is chosen: targets, costs and the search for a plan of kernels."""

from __future__ import annotations

if __name__ != "emmy_eq.extract":
    raise ImportError("import emmy_eq.extract, not extract")
