"""What is chosen: targets, costs and the search for a plan of kernels.

Nothing is imported here: `emmy_eq.extract.dag` and `emmy_eq.extract.store` start in a tenth of the time that the plan search takes.
"""

from __future__ import annotations

if __name__ != "emmy_eq.extract":
    raise ImportError("import emmy_eq.extract, not extract")
