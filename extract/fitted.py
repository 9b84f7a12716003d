"""Constants of the cost model, fitted to kernels that were measured on an H200: ``python -m bench.fit --write`` writes the numbers.

Seconds, and shares of peaks.  Before the dot stands what they belong to: a kind of unit of `emmy_eq.extract.products`, or attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FITTED: Mapping[str, float] = MappingProxyType(
    {
        "dram.share": 0.935,
        "l2.share": 1.05,
        "unhidden": 0.168,  # share of the work on the other units that the busiest one does not hide
        "pass": 3.2e-07,  # that a kernel waits for its first elements
        "join": 3.22e-08,  # of a step in which threads put together what they have of a fold, two by two
        "before": 2.97e-07,  # of a step of a fold that stands before a product in the same kernel
        "fma.128x128.256": 0.69,
        "fma.128x64.256": 0.452,
        "fma.64x128.256": 0.441,
        "fma.64x64.256": 0.378,
        "fma.32x64.128": 0.353,
        "fma.32x32.64": 0.336,
        "fma.16x64.128": 0.261,
        "fma.16x16.64": 0.179,
        "fma.warps": 5.22,
        "fma.latency": 4.41e-07,
        "fma.computed": 4.53e-07,
        "fma.result": 9.15e-09,
        "fma.join": 3.59e-06,
        "fma.part": 2.33,
        "mma.128x256.256": 0.66,
        "mma.256x128.256": 0.597,
        "mma.128x128.128": 0.6,
        "mma.128x128.256": 0.541,
        "mma.128x64.128": 0.593,
        "mma.64x128.128": 0.554,
        "mma.64x64.128": 0.397,
        "mma.32x64.128": 0.142,
        "mma.16x128.128": 0.181,
        "mma.16x64.128": 0.121,
        "mma.16x32.128": 0.173,
        "mma.warps": 3.94,
        "mma.latency": 3.31e-07,
        "mma.computed": 8.84e-07,
        "mma.result": 2.28e-08,
        "mma.join": 2.4e-06,
        "mma.part": 5.14,
        "tf32.128x128.256": 0.467,
        "tf32.128x128.128": 0.55,
        "tf32.128x64.128": 0.506,
        "tf32.32x128.128": 0.455,
        "tf32.32x64.128": 0.311,
        "tf32.16x32.128": 0.185,
        "tf32.warps": 5.19,
        "tf32.latency": 2.87e-07,
        "tf32.computed": 7.21e-07,
        "tf32.result": 4.31e-08,
        "tf32.join": 2.88e-06,
        "tf32.part": 0.931,
        "wgmma.128x256.256": 0.95,
        "wgmma.256x128.512": 0.839,
        "wgmma.128x128.256": 0.857,
        "wgmma.64x256.128": 0.95,
        "wgmma.64x128.128": 0.95,
        "wgmma.128x64.256": 0.679,
        "wgmma.64x64.128": 0.95,
        "wgmma.warps": 3.6,
        "wgmma.latency": 1.17e-07,
        "wgmma.computed": 2e-07,
        "wgmma.result": 1.97e-08,
        "wgmma.join": 3.9e-06,
        "wgmma.part": 2.0,
        "wgmma_f32.128x128.256": 0.81,
        "wgmma_f32.128x64.256": 0.572,
        "wgmma_f32.64x128.256": 0.881,
        "wgmma_f32.64x64.128": 0.608,
        "wgmma_f32.32x128.256": 0.212,
        "wgmma_f32.16x128.256": 0.197,
        "wgmma_f32.warps": 6.11,
        "wgmma_f32.latency": 3e-07,
        "wgmma_f32.computed": 3e-07,
        "wgmma_f32.result": 4.25e-08,
        "wgmma_f32.join": 2.54e-06,
        "wgmma_f32.part": 1.76,
        "attention.share": 1.0,  # of the fma peak, times that of a tile
        "attention.matrix_share": 0.7,  # of the rate of mma.sync, exponentials aside
        "attention.matrix_latency": 5.5e-07,  # of a step, at least
        "attention.wgmma_share": 0.9,  # of the rate of wgmma, which hides the weights
        "attention.wgmma_latency": 6e-07,
        "attention.latency": 5.2e-07,  # of a step of a fold in a fold, at least
    }
)
