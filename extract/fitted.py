"""Constants of the cost model, fitted to kernels that were measured on an H200: ``python -m bench.fit --write`` writes the numbers.

Seconds, and shares of peaks.  Before the dot stands what they belong to: a kind of unit of `emmy_eq.extract.products`, or attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FITTED: Mapping[str, float] = MappingProxyType(
    {
        "dram.share": 0.935,
        "l2.share": 1.16,
        "unhidden": 0.325,  # share of the work on the other units that the busiest one does not hide
        "pass": 4.03e-07,  # that a fold waits for its first elements and its last
        "before": 3.22e-07,  # of a step of a fold that stands before a product in the same kernel
        "fma.128x128.256": 0.69,
        "fma.128x64.256": 0.507,
        "fma.64x128.256": 0.464,
        "fma.64x64.256": 0.379,
        "fma.32x64.128": 0.392,
        "fma.32x32.64": 0.354,
        "fma.16x64.128": 0.28,
        "fma.16x16.64": 0.17,
        "fma.warps": 5.79,
        "fma.latency": 4.41e-07,
        "fma.computed": 5.33e-07,
        "fma.result": 3.49e-08,
        "fma.join": 3.26e-06,
        "fma.part": 2.72,
        "mma.128x256.256": 0.63,
        "mma.256x128.256": 0.63,
        "mma.128x128.128": 0.6,
        "mma.128x128.256": 0.541,
        "mma.128x64.128": 0.593,
        "mma.64x128.128": 0.85,
        "mma.64x64.128": 0.44,
        "mma.32x64.128": 0.289,
        "mma.16x128.128": 0.238,
        "mma.16x64.128": 0.15,
        "mma.16x32.128": 0.14,
        "mma.warps": 5.75,
        "mma.latency": 3.16e-07,
        "mma.computed": 1.06e-06,
        "mma.result": 4.85e-08,
        "mma.join": 1.85e-06,
        "mma.part": 4.42,
        "tf32.128x128.256": 0.551,
        "tf32.128x128.128": 0.55,
        "tf32.128x64.128": 0.561,
        "tf32.32x128.128": 0.531,
        "tf32.32x64.128": 0.332,
        "tf32.16x32.128": 0.176,
        "tf32.warps": 5.19,
        "tf32.latency": 2.87e-07,
        "tf32.computed": 7.25e-07,
        "tf32.result": 6.63e-08,
        "tf32.join": 2.41e-06,
        "tf32.part": 9.75,
        "wgmma.128x256.256": 0.95,
        "wgmma.256x128.512": 0.75,
        "wgmma.128x128.256": 0.95,
        "wgmma.64x256.128": 0.95,
        "wgmma.64x128.128": 0.95,
        "wgmma.128x64.256": 0.718,
        "wgmma.64x64.128": 0.459,
        "wgmma.warps": 3.6,
        "wgmma.latency": 1.25e-07,
        "wgmma.computed": 2e-07,
        "wgmma.result": 2.75e-08,
        "wgmma.join": 3e-06,
        "wgmma.part": 2.36,
        "wgmma_f32.128x128.256": 0.7,
        "wgmma_f32.128x64.256": 0.52,
        "wgmma_f32.64x128.256": 0.52,
        "wgmma_f32.64x64.128": 0.38,
        "wgmma_f32.32x128.256": 0.33,
        "wgmma_f32.16x128.256": 0.2,
        "wgmma_f32.warps": 8.0,
        "wgmma_f32.latency": 3e-07,
        "wgmma_f32.computed": 3e-07,
        "wgmma_f32.result": 2e-08,
        "wgmma_f32.join": 3e-06,
        "wgmma_f32.part": 2.0,
        "attention.share": 0.95,  # of the fma peak, times that of a tile
        "attention.matrix_share": 0.7,  # of the rate of mma.sync, exponentials aside
        "attention.matrix_latency": 5.5e-07,  # of a step, at least
        "attention.wgmma_share": 0.85,  # of the rate of wgmma, which hides the weights
        "attention.wgmma_latency": 1.4e-06,
        "attention.latency": 5.5e-07,  # of a step of a fold in a fold, at least
    }
)
