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
        "unhidden": 0.262,  # share of the work on the other units that the busiest one does not hide
        "pass": 3.83e-07,  # that a fold waits for its first elements and its last
        "before": 3.38e-07,  # of a step of a fold that stands before a product in the same kernel
        "fma.128x128.256": 0.69,
        "fma.128x64.256": 0.452,
        "fma.64x128.256": 0.464,
        "fma.64x64.256": 0.36,
        "fma.32x64.128": 0.372,
        "fma.32x32.64": 0.336,
        "fma.16x64.128": 0.25,
        "fma.16x16.64": 0.17,
        "fma.warps": 5.5,
        "fma.latency": 4.41e-07,
        "fma.computed": 4.53e-07,
        "fma.result": 3.48e-08,
        "fma.join": 3.26e-06,
        "fma.part": 2.58,
        "mma.128x256.256": 0.695,
        "mma.256x128.256": 0.63,
        "mma.128x128.128": 0.6,
        "mma.128x128.256": 0.541,
        "mma.128x64.128": 0.593,
        "mma.64x128.128": 0.583,
        "mma.64x64.128": 0.418,
        "mma.32x64.128": 0.16,
        "mma.16x128.128": 0.238,
        "mma.16x64.128": 0.103,
        "mma.16x32.128": 0.14,
        "mma.warps": 4.63,
        "mma.latency": 3.32e-07,
        "mma.computed": 1.11e-06,
        "mma.result": 5.09e-08,
        "mma.join": 2.18e-06,
        "mma.part": 3.19,
        "tf32.128x128.256": 0.492,
        "tf32.128x128.128": 0.55,
        "tf32.128x64.128": 0.506,
        "tf32.32x128.128": 0.479,
        "tf32.32x64.128": 0.296,
        "tf32.16x32.128": 0.185,
        "tf32.warps": 5.19,
        "tf32.latency": 2.87e-07,
        "tf32.computed": 7.99e-07,
        "tf32.result": 5.35e-08,
        "tf32.join": 2.15e-06,
        "tf32.part": 4.15,
        "wgmma.128x256.256": 0.95,
        "wgmma.256x128.512": 0.883,
        "wgmma.128x128.256": 0.902,
        "wgmma.64x256.128": 0.95,
        "wgmma.64x128.128": 0.95,
        "wgmma.128x64.256": 0.754,
        "wgmma.64x64.128": 0.558,
        "wgmma.warps": 3.6,
        "wgmma.latency": 1.25e-07,
        "wgmma.computed": 2e-07,
        "wgmma.result": 3.18e-08,
        "wgmma.join": 3.53e-06,
        "wgmma.part": 1.46,
        "wgmma_f32.128x128.256": 0.81,
        "wgmma_f32.128x64.256": 0.573,
        "wgmma_f32.64x128.256": 0.614,
        "wgmma_f32.64x64.128": 0.545,
        "wgmma_f32.32x128.256": 0.226,
        "wgmma_f32.16x128.256": 0.2,
        "wgmma_f32.warps": 5.54,
        "wgmma_f32.latency": 3e-07,
        "wgmma_f32.computed": 3e-07,
        "wgmma_f32.result": 4.71e-08,
        "wgmma_f32.join": 2.42e-06,
        "wgmma_f32.part": 1.35,
        "attention.share": 0.95,  # of the fma peak, times that of a tile
        "attention.matrix_share": 0.7,  # of the rate of mma.sync, exponentials aside
        "attention.matrix_latency": 5.5e-07,  # of a step, at least
        "attention.wgmma_share": 0.9,  # of the rate of wgmma, which hides the weights
        "attention.wgmma_latency": 6e-07,
        "attention.latency": 5.5e-07,  # of a step of a fold in a fold, at least
    }
)
