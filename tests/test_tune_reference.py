"""What a tuned row's result is compared with: right results pass, each wrong element is found, on the lattice and beside it."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch

from emmy_eq import loop_ir
from emmy_eq.arrays import to_torch
from emmy_eq.codegen import simulate
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.tile_ir import to_tile
from emmy_eq.codegen.tune import reference
from emmy_eq.codegen.tune.reference import MOST_POINTS, POINTS, Reference, draw, on_lattice
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import target
from emmy_eq.loop_ir import Kernel
from emmy_eq.ops import DTYPES
from tests import loop_samples
from tests.loop_samples import all_samples

H200 = target("H200")


def simulated(kernel: Kernel) -> list[torch.Tensor]:
    memory = draw(kernel) | {b.name: np.empty(b.shape, DTYPES[b.dtype]) for b in kernel.outputs}
    simulate.run(lower(to_tile(kernel, schedules(kernel, H200)[0]), H200), memory)
    return [to_torch(memory[b.name], b.dtype) for b in kernel.outputs]


@pytest.mark.parametrize("points", [POINTS, 8], ids=["whole", "lattice"])
@pytest.mark.parametrize("name", all_samples())
def test_right_results_pass_and_each_wrong_element_is_found(name: str, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "POINTS", points)
    kernel = all_samples()[name]
    expected, right = Reference(kernel, draw(kernel)), simulated(kernel)
    assert expected.verdict(right).passed
    random = np.random.default_rng(1)
    for n, x in enumerate(right):
        wrong = [y.clone() for y in right]
        at = int(random.integers(x.numel()))
        flat = wrong[n].view(-1)
        flat[at] = ~flat[at] if x.dtype == torch.bool else flat[at] + 1 + abs(flat[at])
        assert not expected.verdict(wrong).passed


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_nan_is_not_a_small_error(value: float) -> None:
    kernel = loop_samples.gelu()
    expected, (right,) = Reference(kernel, draw(kernel)), simulated(kernel)
    right.view(-1)[3] = value
    verdict = expected.verdict([right])
    assert not verdict.passed
    assert verdict.error == float("inf")


def test_a_large_kernel_is_interpreted_on_a_lattice_that_meets_every_lane() -> None:
    kernel = on_lattice(loop_samples.matmul(4096, 2048, 512), POINTS)
    (loop,) = [s for s in kernel.body if isinstance(s, loop_ir.Loop)]
    assert prod(a.extent for a in loop.axes) * 512 <= POINTS
    assert all(a.extent >= 32 for a in loop.axes)
    stored = [np.unique(np.nonzero(x)[axis]) for x in loop_ir.run(reference._stores(kernel), {}) for axis in (0, 1)]
    for places, extent in zip(stored, (4096, 2048), strict=True):
        assert places.max() == extent - 1
        assert {int(p) % 32 for p in places} == set(range(32))


def test_a_fold_that_is_too_long_is_refused() -> None:
    kernel = loop_samples.total(MOST_POINTS * 2)
    with pytest.raises(Unsupported, match="too long"):
        Reference(kernel, {})


def test_drawn_indices_stay_inside_what_they_index() -> None:
    for kernel in all_samples().values():
        loop_ir.run(kernel, draw(kernel))  # raises IndexError outside
