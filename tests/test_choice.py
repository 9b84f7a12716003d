"""The model's choices against measured times, and choices that once went wrong."""

from __future__ import annotations

from pathlib import Path

import torch

import emmy_eq
from bench import model
from bench.plans import read
from bench.sweep import choice, points
from bench.workloads import workloads
from emmy_eq.extract.measured import Model
from emmy_eq.extract.plan import search
from emmy_eq.extract.targets import target
from tests.test_extract import decoder_block

RESULTS = Path(__file__).parent.parent / "bench/results"


def test_the_model_chooses_the_faster_plan_at_sizes_it_was_not_fitted_with() -> None:
    records = read(RESULTS / "sweeps-h200.jsonl")
    held = [choice(records[name]) for name in points(True) if name in records]
    assert len(held) == 48
    assert sum(c.agrees for c in held) >= 0.9 * len(held)


def test_the_model_is_within_a_quarter_of_what_was_measured() -> None:
    costs = model.costs(read(RESULTS / "kernels-h200.jsonl")).values()
    error = Model().error(costs)
    assert error is not None
    assert error < 0.25


def test_attention_in_16_bits_is_one_kernel() -> None:
    """Its scores were stored once: a block was thought to keep them for the second pass (H200: 263 us, in one kernel 143)."""
    w = workloads()["sdpa_f16_causal_1x32x1024x64"]
    assert len(emmy_eq.compile(w.skeleton(), tuple(spec.blank() for spec in w.inputs)).plan.kernels) == 1


def test_decode_stores_what_attention_reads() -> None:
    """A projection in the same kernel would be computed for each output: a row's block shares nothing with the next."""
    kernels = search(decoder_block(torch.bfloat16, 1), target("H200")).kernels
    for weight in ("query_weight", "key_weight", "value_weight"):
        reads = next({b.name for b in k.loops.inputs} for k in kernels if weight in {b.name for b in k.loops.inputs})
        assert not reads & {"cos", "sin"}  # what scores are made of
