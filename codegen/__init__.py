"""What runs: Tile IR, Kernel IR, the simulator, CUDA text and the GPU runtime."""

from __future__ import annotations

if __name__ != "emmy_eq.codegen":
    raise ImportError("import emmy_eq.codegen, not codegen")
