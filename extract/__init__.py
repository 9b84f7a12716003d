"""What is chosen: targets, costs and the search for a plan of kernels."""

from __future__ import annotations

if __name__ != "emmy_eq.extract":
    raise ImportError("import emmy_eq.extract, not extract")

from emmy_eq.extract.cost import Cost as Cost
from emmy_eq.extract.loops import to_loops as to_loops
from emmy_eq.extract.plan import Plan as Plan
from emmy_eq.extract.plan import search as search
from emmy_eq.extract.targets import Target as Target
from emmy_eq.extract.targets import target as target
