"""The model's choices against measured times, and choices that once went wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import emmy_eq
from bench import fit, model, rows
from bench.lines import of_plans
from bench.plans import merged
from bench.sweep import choice, families, point, points, tuned
from bench.workloads import workloads
from emmy_eq import loop_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.extract import fitted
from emmy_eq.extract.cost import cost, cost_of_tile
from emmy_eq.extract.egraph import read as read_egraph
from emmy_eq.extract.fitted import FITTED
from emmy_eq.extract.measured import Model
from emmy_eq.extract.plan import search
from emmy_eq.extract.products import units
from emmy_eq.extract.targets import target, targets
from emmy_eq.extract.work import Work
from tests.loop_samples import matmul, rmsnorm, softmax
from tests.test_extract import decoder_block

H200 = targets()["H200"]
RESULTS = Path(__file__).parent.parent / "bench/results"


def test_the_model_chooses_the_faster_plan_at_sizes_it_was_not_fitted_with() -> None:
    records = merged(of_plans(RESULTS / "sweeps-h200.jsonl"))
    held = [choice(records[name]) for name in points(True)]
    assert sum(c.agrees for c in held) >= 0.9 * len(held)


@pytest.mark.parametrize("family", families())
def test_the_model_chooses_the_faster_plan_of_each_program(family: str) -> None:
    records = merged(of_plans(RESULTS / "sweeps-h200.jsonl"))
    found = [choice(record) for name, record in records.items() if name.startswith(f"{family}_")]
    assert len(found) == 36
    assert sum(c.agrees for c in found) >= 0.9 * len(found)


def test_after_tuning_the_fastest_plan_is_taken() -> None:
    records = merged(of_plans(RESULTS / "sweeps-h200.jsonl"))
    assert records.keys() == {*points(False), *points(True)}
    assert [name for name, r in records.items() if not tuned(r).agrees] == []


def test_a_choice_is_right_where_no_measured_plan_is_faster() -> None:
    plans = [{"kernels": [k], "stored": [], "us": us} for k, us in (("a", 10.0), ("b", 10.2), ("c", 12.0), ("d", None))]
    record = {"plans": plans, "kernels": {"a": {"us": 10.0}, "c": {"us": 12.0}}}
    found = {k: tuned(record | {"tuned": k.split()}) for k in ("a", "b", "c", "d", "a c")}
    assert [k for k, c in found.items() if c.agrees] == ["a", "b"]
    assert [k for k, c in found.items() if c.tie] == ["b"]
    assert found["a c"].us == 22.0
    assert found["d"].us is None
    assert not tuned(record).agrees  # its tuning did not end


def test_rows_tell_where_the_default_is_slower() -> None:
    kernel = matmul(256, 256, 256)
    found = schedules(kernel, H200)
    first, fma = str(found[0]), next(str(row) for row in found[1:] if not row.atoms)
    record = {"program": "p", "kernel": "matmul", "target": "H200", "loops": loop_ir.show(kernel), "rows": {first: 6.0, fma: 4.0}}
    choice = rows.choice(record)
    assert (choice.us, choice.best, choice.fastest) == (6.0, 4.0, fma)
    assert "1.50" in rows.report([record])
    assert f"{2 * 256**3 / H200.flops['fma'] / (4e-6 - H200.launch_seconds):.2f}" in rows.tiles([record])


def test_the_model_is_within_a_quarter_of_what_was_measured() -> None:
    costs = model.costs(merged(of_plans(RESULTS / "kernels-h200.jsonl"))).values()
    error = Model().error(c for _, c in costs)
    assert error is not None
    assert error < 0.25


def test_the_fit_finds_constants_that_were_moved() -> None:
    fma, large = units()["fma"], units()["fma"].tiles[0]
    share = f"fma.{large.m}x{large.n}.{large.threads}"
    moved = replace(H200, fitted={**H200.fitted, "pass": 2 * H200.fitted["pass"], share: 0.6 * H200.fitted[share]})
    kernels = [fit.Sample("none", Work(k), cost(k, moved).modelled, False) for k in (rmsnorm(32, 2048), softmax(64, 1024), rmsnorm(8, 64))]
    works = [Work(matmul(m, 2048, k)) for m, k in ((1024, 512), (2048, 2048), (4096, 256))]
    costs = [cost_of_tile(w, moved, fma, large, 1) for w in works]
    rows = [fit.Sample("rows", w, c.modelled, False, (fma, large, 1)) for w, c in zip(works, costs, strict=True) if c is not None]
    found = fit.fit([*kernels, *rows], H200)
    assert fit.loss([*kernels, *rows], H200) > 0.2
    assert fit.loss([*kernels, *rows], found) < 0.03
    assert 0.5 < found.fitted[share] / H200.fitted[share] < 0.7


def test_fitted_constants_are_written_in_place() -> None:
    text = Path(fitted.__file__).read_text()
    assert fit.written(text, FITTED) == text
    assert '"fma.join": 1.23e-06,\n' in fit.written(text, {"fma.join": 1.2345e-6})


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


def test_a_norm_may_be_stored_for_the_product_that_reads_it() -> None:
    """It is rebuilt from a row's statistics for each tile of the product else (H200, 32 x 2048 x 2048: 22.8 us, stored 15.9)."""
    w = point("norm_linear_f32_32x2048x2048")
    compiled = emmy_eq.compile(w.function("cpu"), tuple(spec.blank() for spec in w.inputs))
    norm = next(s.cls for s in compiled.egraph.seams if s.name == "rms_norm")
    assert norm in read_egraph(compiled.egraph).cuts
