"""Constants of the cost model, fitted to kernels that were measured on an H200: ``python -m bench.fit`` prints this table.

Seconds, and shares of peaks.  Before the dot stands what they belong to: a kind of unit of `emmy_eq.extract.products`, or attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FITTED: Mapping[str, float] = MappingProxyType(
    {
        "dram.share": 0.89,
        "l2.share": 1.0,
        "unhidden": 0.25,  # share of the work on the other units that the busiest one does not hide
        "pass": 2.5e-07,  # that a fold waits for its first elements and its last
        "before": 5e-07,  # of a step of a fold that stands before a product in the same kernel
        "fma.share": 1.0,
        "fma.latency": 6e-07,
        "fma.computed": 6e-07,
        "fma.result": 2e-08,
        "fma.join": 4e-06,
        "fma.part": 3e-07,
        "mma.share": 1.0,
        "mma.latency": 2.1e-07,
        "mma.computed": 4.5e-07,
        "mma.result": 4e-08,
        "mma.join": 1.5e-06,
        "mma.part": 2e-07,
        "wgmma.share": 1.0,
        "wgmma.latency": 2e-07,
        "wgmma.computed": 2e-07,
        "wgmma.result": 2e-08,
        "wgmma.join": 1.5e-06,
        "wgmma.part": 2e-07,
        "wgmma_f32.share": 1.0,
        "wgmma_f32.latency": 3e-07,
        "wgmma_f32.computed": 3e-07,
        "wgmma_f32.result": 2e-08,
        "wgmma_f32.join": 1.5e-06,
        "wgmma_f32.part": 2e-07,
        "attention.share": 1.0,  # of the fma peak, times that of a tile
        "attention.matrix_share": 0.7,  # of the rate of mma.sync, exponentials aside
        "attention.matrix_latency": 5.5e-07,  # of a step, at least
        "attention.wgmma_share": 0.85,  # of the rate of wgmma, which hides the weights
        "attention.wgmma_latency": 1.4e-06,
        "attention.latency": 5.5e-07,  # of a step of a fold in a fold, at least
    }
)
