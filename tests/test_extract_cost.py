"""Targets and the roofline: published figures, and orders that any sane model keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.cost import cost
from emmy_eq.extract.targets import target, targets

from . import loop_samples as samples

H200 = target("H200")


@pytest.mark.parametrize(("name", "wanted"), [("a100", "A100"), ("H200", "H200"), ("sm_80", "A100"), ("sm_120", "RTX5090")])
def test_targets_by_name_and_architecture(name: str, wanted: str) -> None:
    assert target(name) is targets()[wanted]


def test_sm_90a_is_a_hopper() -> None:
    assert target("sm_90a").wgmma
    assert {t.name for t in targets().values() if t.arch == "sm_90a"} == {"H100", "H200"}


def test_an_unknown_target_lists_the_legal_ones() -> None:
    with pytest.raises(InvalidInput, match=r"A100, RTX4090, H100, H200, RTX5090, sm_80, sm_89, sm_90a, sm_120"):
        target("sm_75")


@pytest.mark.parametrize("name", targets())
def test_published_rates_agree_with_each_other(name: str) -> None:
    """An SM issues 64 (A100) or 128 f32 fma a clock; a tensor core does at least as much at half the width."""
    t = targets()[name]
    lanes = 64 if name == "A100" else 128
    # boost clocks are published to three digits
    assert t.flops["fma"] == pytest.approx(2 * lanes * t.sms * t.clock, rel=0.01)
    assert t.flops["f16"] >= 2 * t.flops["tf32"] * 0.99
    assert t.shared_per_block < t.shared_per_sm


def test_bytes_of_a_map_are_its_buffers() -> None:
    modelled = cost(samples.transpose(1 << 12, 1 << 12), H200)
    assert modelled.bytes == 2 * 4 << 24
    assert modelled.bound == "DRAM"
    assert modelled.seconds == pytest.approx((2 * 4 << 24) / H200.dram_bandwidth, rel=0.3)


def test_flops_of_a_product() -> None:
    modelled = cost(samples.matmul(256, 512, 128), H200)
    assert modelled.flops == {"tf32x3": 2 * 256 * 512 * 128}
    assert modelled.seconds > H200.launch_seconds


def test_a_large_product_runs_near_the_peak_and_a_thin_one_does_not() -> None:
    for m, n, share in ((4096, 4096, 0.5), (16, 64, 0.01)):
        modelled = cost(samples.matmul(m, n, 4096), H200)
        reached = modelled.flops["tf32x3"] / (modelled.seconds * H200.flops["tf32x3"])
        assert (reached > 0.5) == (share == 0.5)
        assert reached < 1


def test_a_row_that_fits_a_block_is_read_once() -> None:
    assert cost(samples.softmax_in_two_passes(4096, 2048), H200).bytes == 2 * 4 * 4096 * 2048
    # One row of 4 MiB; the kernel's data exceed the L2 cache, so each of three passes reads it from DRAM.
    assert cost(samples.softmax_in_two_passes(64, 1 << 20), H200).bytes == 4 * 4 * 64 << 20


def test_one_pass_pays_where_the_row_does_not_fit() -> None:
    small, large = (512, 1024), (64, 1 << 20)
    # A row that stays in the block: the same but for a pass over it and the exponentials (10 %: no choice hangs on it).
    assert cost(samples.softmax_in_two_passes(*small), H200).seconds <= 1.1 * cost(samples.softmax(*small), H200).seconds
    assert cost(samples.softmax_in_two_passes(*large), H200).seconds > cost(samples.softmax(*large), H200).seconds


def test_a_causal_mask_saves_half_of_attention() -> None:
    """Blocks stop at their last key, as `emmy_eq.codegen.lower.skip` has it."""
    plain, masked = cost(samples.attention(8, 1024, 1024, 64), H200), cost(samples.attention(8, 1024, 1024, 64, causal=True), H200)
    assert 0.5 * plain.seconds < masked.seconds < 0.6 * plain.seconds


def test_a_block_keeps_all_columns_of_a_product_of_a_product() -> None:
    """(a @ b) @ c computes no row of a @ b twice; 1024 columns exceed a thread's registers, and a second kernel is faster."""
    narrow, wide = cost(samples.two_matmuls(256, 256, 256, 64), H200), cost(samples.two_matmuls(256, 256, 256, 1024), H200)
    assert narrow.flops["fma"] == 2 * (256 + 64) * 256**2
    assert wide.flops["fma"] == 2 * (256 + 1024) * 256**2
    assert wide.seconds > cost(samples.matmul(256, 256, 256), H200).seconds + cost(samples.matmul(256, 1024, 256), H200).seconds


def test_scores_are_read_again_by_each_pass_over_them() -> None:
    """softmax(s) @ v in one kernel of three passes: no block keeps the rows of its tile, so that storing the softmax is faster."""
    fused = cost(samples.softmax_product(1024, 1024, 64), H200).seconds
    cut = cost(samples.softmax_in_two_passes(1024, 1024), H200).seconds + cost(samples.matmul(1024, 64, 1024), H200).seconds
    assert fused > 2 * cut  # measured: 65.5 us against 2.9 + 12.3


def test_tensor_cores_count_where_code_generation_uses_them() -> None:
    kernel = samples.matmul(2048, 2048, 2048, dtype="bf16")
    assert cost(kernel, H200).flops == {"bf16": 2 * 2048**3}
    without = replace(H200, contraction_units={"f32": "fma", "bf16": "fma"})
    assert cost(kernel, without).flops == {"fma": 2 * 2048**3}
    assert cost(kernel, H200).seconds < cost(kernel, without).seconds / 4
