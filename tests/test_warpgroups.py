"""Attention by warpgroups (wgmma) and the copy engine: agrees in the simulator with float64; CUDA for sm_90a."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy_eq import index as ix
from emmy_eq import tensor_ir
from emmy_eq.arrays import to_numpy
from emmy_eq.codegen import cuda, kernel_ir, schedule, simulate, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.lower.persistent import Rounds
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture_code
from tests import tile_kernels as kernels
from tests.kernel_samples import without
from tests.test_lower import H200, check
from tests.test_mma import lowered, used
from tests.test_wgmma import persistent


def row(warps: int, dim: int, keys: int, depth: int = 2, raster: str = "row") -> str:
    tile = f"i1:w{warps}.m16,i2:r{-(-dim // 8)}.n8"
    return f"WORK=t{32 * warps} TILE={tile} REDUCE=i4:s.r{keys // 16}.k16,i3:r{-(-dim // 16)}.k16 STAGE={depth}:tma RASTER={raster}"


@pytest.mark.parametrize(
    ("shape", "rest"),
    [
        ((2, 64, 64, 64), (4, 64)),
        ((1, 64, 192, 64), (4, 64, 3)),
        ((2, 5, 17, 40, "bf16"), (4, 64, 3)),
        ((4, 70, 33, 16, "f16", True, 2, True), (4, 64)),
        ((1, 70, 200, 64, "bf16", True), (4, 64, 2, "late")),
        ((2, 130, 130, 64, "f16", True, 1, True), (8, 64, 2, "late1")),
        ((4, 130, 200, 64, "bf16", False, 2), (8, 128)),
        ((1, 40, 70, 80, "bf16", False, 1, True), (4, 64)),
        ((1, 256, 256, 128, "bf16", True, 1, True), (8, 128, 2, "late")),
        ((1, 33, 140, 256, "f16"), (4, 64)),
    ],
)
def test_agrees_with_float64(shape: tuple[Any, ...], rest: tuple[Any, ...]) -> None:
    text, how = kernels.attention_halves(*shape), row(rest[0], shape[3], *rest[1:])
    made = lowered(text, how)
    kernel_ir.verify(made, H200)
    assert {kernel_ir.Wgmma, kernel_ir.TmaLoad, kernel_ir.TmaStore} <= used(made)
    check(text, how, roundings=3)  # of the weights, in sum and product, and of the result


def transposed(dtype: str = "f16") -> str:
    """Keys that lie along their number, values along the keys."""
    text = kernels.attention_halves(2, 70, 136, 64, dtype)
    return (
        text.replace("k: f16[2,136,64], v: f16[2,136,64]", "k: f16[2,64,136], v: f16[2,64,136]")
        .replace("load k[i0, i4, i3]", "load k[i0, i3, i4]")
        .replace("load v[i0, i4, i2]", "load v[i0, i2, i4]")
    )


def scored(lines: str, values: str = "") -> str:
    """Attention whose scores go through ``lines`` from v5 to v6; ``values``: more inputs."""
    text = (
        kernels.attention_halves(2, 70, 136, 64)
        .replace("      v7 = load v", lines.rstrip() + "\n      v7 = load v")
        .replace("softmax(v5,", "softmax(v6,")
    )
    return text.replace(") -> out", f"{values}) -> out")


ADDED = """
      v30 = load mask[i1, i4]
      v31 = cast f32 v30
      v6 = add v5, v31"""
CAPPED = """
      v30 = lit f32 0.25
      v31 = mul v5, v30
      v32 = tanh v31
      v33 = lit f32 4.0
      v6 = mul v32, v33"""
WINDOW = """
      v30 = iota i1 + 66
      v31 = iota i4
      v32 = ge v30, v31
      v33 = iota i1
      v34 = le v33, v31
      v35 = and v32, v34
      v36 = lit f32 -inf
      v6 = where v35, v5, v36"""


@pytest.mark.parametrize(
    "text",
    [
        transposed(),
        scored(ADDED, ", mask: f16[70,136]"),
        scored(ADDED.replace("[i1, i4]", "[i0, i4]"), ", mask: f16[2,136]"),
        scored(CAPPED),
        scored(WINDOW),
    ],
)
def test_other_orders_and_scores(text: str) -> None:
    check(text, row(4, 64, 64), roundings=3)


EVERY = [
    kernels.attention_halves(2, 128, 128, 64, "bf16", causal=True, safe=True),
    kernels.attention_halves(4, 70, 100, 40, groups=2),
    kernels.attention_halves(1, 256, 384, 128, "f16", causal=True),
]


@pytest.mark.parametrize("text", EVERY)
def test_warpgroups_are_the_default(text: str) -> None:
    how = schedules(kernels.kernel(text), H200)[0]
    made = lower(tile_ir.to_tile(kernels.kernel(text), how), H200)
    assert kernel_ir.Wgmma in used(made)
    assert compile_cubin(cuda.source(made, H200), H200.arch)
    check(text, how, roundings=3)


@pytest.mark.parametrize("text", [kernels.attention_halves(2, 64, 64, 20), kernels.attention_halves(2, 8, 64, 264)])
def test_what_warpgroups_cannot_take_has_other_rows(text: str) -> None:
    """Rows of 40 bytes; more columns than a wgmma has."""
    assert all(how.stage.path != "tma" for how in schedules(kernels.kernel(text), H200))


def test_only_edges_are_masked() -> None:
    """A block's last step of keys stands before the loop, which has neither comparisons nor a second copy."""
    made = lowered(kernels.attention_halves(1, 512, 512, 64, "f16", True), row(8, 64, 128, raster="late"))
    (role,) = (s for s in made.body if isinstance(s, kernel_ir.Role))
    (loop,) = (s for s in role.bodies[0] if isinstance(s, kernel_ir.For))
    assert not any(map(_compares_positions, walk.statements(loop.body)))
    assert any(map(_compares_positions, role.bodies[0]))


def _compares_positions(s: kernel_ir.Stmt) -> bool:
    integers = isinstance(s, kernel_ir.Let) and {a.dtype for a in s.args if isinstance(a, kernel_ir.Lit)} == {"i32"}
    return integers and isinstance(s, kernel_ir.Let) and s.op in ("ge", "le", "lt")


@pytest.mark.parametrize("text", [kernels.attention_halves(1, 64, 128, 64), kernels.attention_halves(1, 256, 256, 64, "bf16", True)])
def test_a_weight_takes_one_fma_and_one_exponential(text: str) -> None:
    """Scores times a constant, under a mask too: what else there is, is of rows, and of keys so far from 0 that rounding them tells."""
    made = lowered(text, row(4, 64, 64))
    (loop,) = (s for s in walk.statements(made.body) if isinstance(s, kernel_ir.For) and kernel_ir.Wgmma in {type(x) for x in s.body})
    ops = [s.op for s in loop.body if isinstance(s, kernel_ir.Let)]
    weights = 64 * 64 // 128
    assert ops.count("fma") == weights
    assert ops.count("exp2_approx") == weights + 2  # and of two rows' rescaling
    assert ops.count("mul") + ops.count("sub") < 16


def test_rows_of_blocks_start_together_by_heads() -> None:
    kernel = kernels.kernel(kernels.attention_halves(6, 512, 512, 64, "f16", True))
    with pytest.raises(InvalidInput, match="no multiple of 4"):
        lower(tile_ir.to_tile(kernel, schedule.parse(row(8, 64, 128, raster="late4"))), H200)
    check(kernels.attention_halves(4, 130, 70, 16, "f16", True, 1, True), row(4, 16, 64, raster="late2"), roundings=3)


def test_what_a_launch_could_not_ask_for_is_refused() -> None:
    """224 KB of boxes and their mbarriers would fit; what aligns them to 1024 bytes does not."""
    with pytest.raises(Unsupported, match="shared memory"):
        lowered(kernels.attention_halves(1, 128, 512, 128), row(8, 128, 192))


def test_a_fold_that_is_no_attention_says_so() -> None:
    with pytest.raises(Unsupported, match="copy engine"):
        lowered(kernels.attention_halves(1, 64, 128, 64), row(4, 64, 64).replace("s.r4.k16", "b2.s.r4.k16"))


@pytest.mark.parametrize(
    ("shape", "how", "blocks"),
    [
        ((2, 256, 256, 64, "bf16", True, 1, True), row(4, 64, 64, raster="late"), 1),
        ((3, 130, 200, 64), row(4, 64, 64, 3), 2),  # the last round has work for one block
        ((4, 130, 300, 40, "bf16", True, 2, True), row(4, 40, 64, raster="late2"), 5),
        ((2, 256, 256, 128, "bf16", True, 1, True), row(8, 128, 128, raster="late"), 3),
        ((3, 64, 64, 64), row(4, 64, 64), 2),  # one step of keys
    ],
)
def test_persistent_blocks_count_turns_over_tiles(shape: tuple[Any, ...], how: str, blocks: int) -> None:
    """Under a causal mask tiles differ in their number of steps."""
    text, how = kernels.attention_halves(*shape), persistent(how, blocks)
    made = lowered(text, how)
    kernel_ir.verify(made, H200)
    assert made.grid == (blocks, 1, 1)
    check(text, how, roundings=3)


@pytest.mark.parametrize(("tiles", "blocks"), [(7, 3), (8, 3), (9, 3), (12, 4), (4, 4), (5, 1)])
@pytest.mark.parametrize("turning", [False, True])
def test_every_tile_is_taken_once(tiles: int, blocks: int, turning: bool) -> None:
    rounds = Rounds("r", "t", tiles, blocks, turning)
    number = rounds.first.idx
    assert number is not None
    stops = [ix.evaluate(rounds.stop, {"bx": b}) for b in range(blocks)]
    taken = [ix.evaluate(number, {"bx": b, "r": r}) for b, stop in enumerate(stops) for r in range(stop)]
    assert sorted(taken) == list(range(tiles))


@pytest.mark.parametrize(
    ("kind", "which", "reported"),
    [
        (kernel_ir.WgmmaFence, 0, "wgmma.fence"),
        (kernel_ir.MbarExpect, 0, "deadlock"),
        (kernel_ir.MbarExpect, 1, "deadlock"),
        (kernel_ir.MbarArrive, 0, "deadlock"),
        (kernel_ir.MbarArrive, 2, "deadlock"),
        (kernel_ir.WgmmaWait, 2, "race"),
        (kernel_ir.MbarWait, 0, "race"),
        (kernel_ir.MbarWait, 1, "race"),
        (kernel_ir.MbarWait, 2, "race"),
        (kernel_ir.MbarWait, 3, "race"),
    ],
)
def test_the_simulator_needs_every_part_of_the_pipeline(kind: type, which: int, reported: str) -> None:
    broken = without(lowered(kernels.attention_halves(1, 64, 320, 64), row(4, 64, 64)), kind, which)
    memory = {p.name: np.ones(p.size, "f2") for p in broken.params}
    with pytest.raises(simulate.KernelFault, match=reported):
        simulate.run(broken, memory)


@pytest.mark.parametrize("which", [0, 1])
def test_scores_are_not_there_before_their_wait(which: int) -> None:
    broken = without(lowered(kernels.attention_halves(1, 64, 320, 64), row(4, 64, 64)), kernel_ir.WgmmaWait, which)
    memory = {p.name: np.ones(p.size, "f2") for p in broken.params}
    simulate.run(broken, memory)
    assert np.isnan(memory["out"]).all()


HEADS = "q,k,v=(torch.randn({shape},dtype=torch.half) for n,s in ((4,70),(2,136),(2,136))); "
CODES = {
    "shared keys": HEADS.format(shape="1,n,s,64") + "F.scaled_dot_product_attention(q,k,v,enable_gqa=True,is_causal=True)",
    "heads in rows": HEADS.format(shape="2,s,2,64") + "F.scaled_dot_product_attention(*(x.transpose(1,2) for x in (q,k,v)))",
    "mask": HEADS.format(shape="1,2,s,64") + "F.scaled_dot_product_attention(q,k,v,torch.randn(70,136)>-1)",
}


@pytest.mark.parametrize("name", CODES)
def test_attention_of_torch_is_one_kernel_of_warpgroups(name: str) -> None:
    made = Compiled(lambda: capture_code(CODES[name]), Options(target="H200"))
    (kernel,) = made.kernel_ir
    assert kernel_ir.Wgmma in used(kernel)
    given = made.torch_ir.examples()
    (exact,) = tensor_ir.run(made.tensor_ir, {n: to_numpy(x) for n, x in given.items()}, float64=True)
    (got,) = made.run(given)
    error = 3 * 2.0**-11 * np.abs(exact).max()  # three roundings to f16, as above
    np.testing.assert_allclose(to_numpy(got).astype(np.float64), exact, rtol=0, atol=error)


BESIDE = """x, w, b = torch.randn(1, 70, 64).half(), torch.randn(3 * 2 * 40, 64).half() / 8, torch.randn(3 * 2 * 40).half()
q, k, v = (t.view(1, 70, 2, 40).transpose(1, 2) for t in F.linear(x, w, b).chunk(3, -1))
F.scaled_dot_product_attention(q, k, v)"""


def test_queries_keys_and_values_of_one_product_are_read_where_they_lie() -> None:
    made = Compiled(lambda: capture_code(BESIDE), Options(target="H200"))
    _, attention = made.kernel_ir
    assert [m.start for m in attention.maps if m.buffer == "linear"] == [0, 80, 160]
    given = made.torch_ir.examples()
    (exact,) = tensor_ir.run(made.tensor_ir, {n: to_numpy(x) for n, x in given.items()}, float64=True)
    (got,) = made.run(given)
    error = 4 * 2.0**-11 * np.abs(exact).max()  # of the product, and three as above
    np.testing.assert_allclose(to_numpy(got).astype(np.float64), exact, rtol=0, atol=error)


def test_rows_that_straddle_lines_of_l2_are_shared_by_more_rows_of_scores() -> None:
    """The copy engine brings them slowly: 64 rows a block took 281 us where 256 take 132 (2 x 8 heads of 40, 4096 queries, H200)."""
    heights = {d: schedules(kernels.kernel(kernels.attention_halves(16, 4096, 4096, d)), H200)[0].split("i1").tile for d in (40, 64)}
    assert heights == {40: 256, 64: 64}
