"""Sample kernels give the right values in the simulator, and planted faults are reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen import simulate
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.simulate import control
from emmy_eq.index import Idx, const, var
from tests import kernel_samples as ks
from tests.kernel_samples import Sample, buffers, replaced, without

TID = var("tid")


def outcome(sample: Sample) -> None:
    """Run on drawn inputs and compare with float64."""
    inputs = sample.inputs(np.random.default_rng(0))
    arrays = buffers(sample, inputs)
    simulate.run(sample.kernel, arrays)
    for name, wanted in sample.reference(inputs).items():
        limit = sample.tolerance * np.abs(wanted).max()
        if sample.kernel.name == "vector_add":
            wanted = wanted.astype(np.float32)  # one rounding, the kernel's own
        np.testing.assert_allclose(arrays[name].astype(np.float64), wanted, rtol=0, atol=limit)


@pytest.mark.parametrize("name", ks.samples())
def test_values(name: str) -> None:
    outcome(ks.samples()[name])


@pytest.mark.parametrize("name", ks.samples())
def test_no_more_statements_are_executed_than_steps_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer goes by it: a fused plan whose one thread had ten million statements took minutes."""
    executed = 0

    def counted(handler: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            nonlocal executed
            executed += 1
            return handler(*args)

        return count

    for table in ("SIMPLE", "WAITING"):
        monkeypatch.setattr(control, table, {kind: counted(handler) for kind, handler in getattr(control, table).items()})
    sample = ks.samples()[name]
    simulate.run(sample.kernel, buffers(sample, sample.inputs(np.random.default_rng(0))))
    assert executed <= simulate.steps(sample.kernel) <= 2 * executed + 30


def fault(sample: Sample, kernel: ir.Kernel) -> simulate.KernelFault:
    with pytest.raises(simulate.KernelFault) as caught:
        simulate.run(kernel, buffers(sample, sample.inputs(np.random.default_rng(0))))
    return caught.value


def nth(kernel: ir.Kernel, kind: type, which: int = 0) -> ir.Stmt:
    return [s for s in walk.statements(kernel.body) if isinstance(s, kind)][which]


@pytest.mark.parametrize(
    ("sample", "kind", "which", "reported"),
    [
        (ks.row_sum(), ir.Barrier, 0, "race"),
        (ks.staged_matmul(64, 64, 64), ir.Barrier, 0, "race"),  # before a stage is read
        (ks.staged_matmul(64, 64, 64), ir.Barrier, 1, "race"),  # before a stage is filled again
        (ks.staged_matmul(64, 64, 64), ir.CpAsyncWait, 0, "race"),
        (ks.last_block_sum(), ir.Fence, 0, "race"),  # of the blocks that leave a partial sum
        (ks.last_block_sum(), ir.Fence, 1, "race"),  # of the block that reads them
        (ks.last_block_sum(), ir.Barrier, 1, "race"),  # the flag in shared memory
        (ks.mma_matmul(), ir.Barrier, 0, "race"),
        (ks.wgmma_matmul(), ir.MbarExpect, 0, "deadlock"),
        (ks.wgmma_matmul(), ir.MbarArrive, 0, "deadlock"),
        (ks.wgmma_matmul(), ir.TmaLoad, 1, "deadlock"),
        (ks.wgmma_matmul(), ir.MbarWait, 0, "protocol"),  # the producer runs ahead: an arrival too many
        (ks.wgmma_matmul(), ir.MbarWait, 1, "race"),  # the consumers read before the box has landed
        (ks.wgmma_matmul(), ir.Barrier, 0, "race"),  # mbarriers used before they are visible
        (ks.wgmma_matmul(), ir.Barrier, 1, "race"),  # results leave before all are stored
        (ks.wgmma_matmul(), ir.ProxyFence, 0, "race"),
        (ks.wgmma_matmul(), ir.WgmmaFence, 0, "protocol"),
        (ks.wgmma_matmul(), ir.WgmmaWait, 0, "race"),  # the stage is freed while the tensor core reads it
        (ks.wgmma_matmul(), ir.TmaWait, 0, "protocol"),
    ],
    ids=lambda x: x.kernel.name if isinstance(x, Sample) else x.__name__ if isinstance(x, type) else str(x),
)
def test_a_missing_statement_is_found(sample: Sample, kind: type, which: int, reported: str) -> None:
    assert fault(sample, without(sample.kernel, kind, which)).kind == reported


def test_a_block_that_takes_itself_for_the_last_is_found() -> None:
    sample = ks.last_block_sum()
    last = [s for s in walk.statements(sample.kernel.body) if isinstance(s, ir.If)][-1]
    early = replace(last, where=(ir.Cmp(var("before"), "==", const(1)), *last.where[1:]))
    found = fault(sample, replaced(sample.kernel, last, (early,)))
    assert (found.kind, found.where) == ("race", "p: f32 = load.global.cg partial[b]")


def test_a_dropped_counter_reset_is_found() -> None:
    sample = ks.last_block_sum()
    assert fault(sample, without(sample.kernel, ir.Store, 4)).why == "count is not zero again"


def test_off_by_one_names_kernel_statement_and_offset() -> None:
    sample = ks.row_sum(2, 500)
    load = nth(sample.kernel, ir.Load)
    assert isinstance(load, ir.Load)
    shifted = replaced(sample.kernel, load, (replace(load, offset=load.offset + 1),))
    found = fault(sample, shifted)
    assert (found.kernel, found.kind) == ("row_sum", "bounds")
    assert found.where.startswith("x0: f32 = load.global x[")
    assert found.why == "x[1000] by thread 115 of block 1; the array has 1000 elements"


def test_wrong_stage_reads_what_is_in_flight() -> None:
    sample = ks.staged_matmul(64, 64, 64)
    load = nth(sample.kernel, ir.Load)
    assert isinstance(load, ir.Load)
    other = replace(load, offset=(ks.K0 // 16 + 1) % 2 * (64 * 20) + TID // 16 * 80 + ks.KK)
    assert "in flight" in fault(sample, replaced(sample.kernel, load, (other,))).why


def small(*body: ir.Stmt, shared: tuple[ir.Shared, ...] = (ir.Shared("s", "i32", 64),), threads: int = 64) -> Sample:
    """A kernel that stores an i32 a thread."""
    params = (ir.Param("x", "i32", 256, "input"), ir.Param("o", "i32", 256, "output"))
    kernel = ir.Kernel("small", params, (1, 1, 1), threads, shared, body)
    return Sample(kernel, lambda rng: {"x": np.arange(256, dtype=np.int32)}, lambda x: {})


def result(sample: Sample) -> np.ndarray[Any, Any]:
    arrays = buffers(sample, sample.inputs(np.random.default_rng(0)))
    simulate.run(sample.kernel, arrays)
    return arrays["o"]


def put(register: str, at: Idx = TID) -> ir.Stmt:
    return ir.Store((register,), "i32", "global", "o", at)


FIRST = (ir.Cmp(TID, "==", const(0)),)
X = ir.Load(("x0",), "i32", "global", "x", TID)


def test_a_warp_is_ordered_by_warpsync_alone() -> None:
    store = ir.Store(("x0",), "i32", "shared", "s", TID)
    load = ir.Load(("y",), "i32", "shared", "s", TID // 32 * 32 + (TID + 1) % 32)
    assert fault(small(X, store, load, put("y")), small(X, store, load, put("y")).kernel).kind == "race"
    found = result(small(X, store, ir.WarpSync(), load, put("y")))
    assert found[:64].tolist() == [32 * (t // 32) + (t + 1) % 32 for t in range(64)]


def test_warpsync_does_not_order_two_warps() -> None:
    s = small(
        X, ir.Store(("x0",), "i32", "shared", "s", TID), ir.WarpSync(), ir.Load(("y",), "i32", "shared", "s", TID * -1 + 63), put("y")
    )
    assert fault(s, s.kernel).kind == "race"


def test_two_threads_that_store_to_one_address_race() -> None:
    s = small(X, put("x0", TID // 2))
    assert "writes it too" in fault(s, s.kernel).why


def test_a_block_that_reads_anothers_store_races() -> None:
    body = (X, put("x0", var("bx") * 64 + TID), ir.Load(("y",), "i32", "global", "o", TID), put("y", TID + 128))
    s = small(*body)
    assert fault(s, replace(s.kernel, grid=(2, 1, 1))).kind == "race"


def test_a_lane_that_arrives_for_its_warp_waits_for_the_warp_first() -> None:
    def kernel(*between: ir.Stmt) -> Sample:
        last = ir.If((ir.Cmp(var("before"), "==", const(1)),), (
            ir.Fence(), ir.Load(("y",), "i32", "global", "left", TID, cache="cg"), put("y"),
            ir.Store((ir.Lit("i32", 0),), "i32", "global", "seen", const(0), FIRST),
        ))  # fmt: skip
        s = small(
            X, ir.Store(("x0",), "i32", "global", "left", var("bx") * 32 + TID), ir.Fence(), *between,
            ir.Atomic("old", "global", "seen", const(0), ir.Lit("i32", 1), FIRST),
            ir.Store(("old",), "i32", "shared", "s", const(0), FIRST), ir.Barrier(), ir.Load(("before",), "i32", "shared", "s", const(0)),
            last, threads=32,
        )  # fmt: skip
        scratch = (ir.Param("left", "i32", 64, "scratch"), ir.Param("seen", "i32", 1, "zeroed"))
        return replace(s, kernel=replace(s.kernel, grid=(2, 1, 1), params=s.kernel.params + scratch))

    assert fault(kernel(), kernel().kernel).kind == "race"
    assert result(kernel(ir.WarpSync()))[:32].tolist() == list(range(32))


def test_uninitialized_memory_is_poison() -> None:
    found = result(small(ir.Load(("y",), "i32", "shared", "s", TID), put("y")))
    assert abs(int(found[0])) > 2**24
    assert found[0] == found[200]  # outputs that the kernel does not write are poisoned too


def test_divergent_barrier() -> None:
    s = small(ir.If((ir.Cmp(TID, "<", const(32)),), (ir.Barrier(),)))
    assert fault(s, s.kernel).why == "32 of 64 threads of block 0 reach the barrier"
    s = small(ir.If((ir.Cmp(TID, "<", const(16)),), (ir.Barrier(),)))
    assert "only some lanes" in fault(s, s.kernel).why


def test_named_barrier_of_some_warps_is_no_divergence() -> None:
    half = (ir.Cmp(TID, "<", const(32)),)
    mirrored = ir.Load(("y",), "i32", "shared", "s", TID * -1 + 31)
    store = ir.Store(("x0",), "i32", "shared", "s", TID)
    s = small(X, ir.If(half, (store, ir.Barrier(1, 32), mirrored, put("y"))))
    assert result(s)[:32].tolist() == list(range(31, -1, -1))


def test_shuffle_in_a_divergent_warp() -> None:
    s = small(X, ir.If((ir.Cmp(TID, "<", const(16)),), (ir.Shuffle("y", "i32", "x0", "xor", const(16)), put("y"))))
    assert fault(s, s.kernel).kind == "divergence"


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("up", lambda t: t - 3 if t % 32 >= 3 else t),
        ("down", lambda t: t + 3 if t % 32 < 29 else t),
        ("xor", lambda t: t ^ 3),
        ("idx", lambda t: t // 32 * 32 + 3),
    ],
)
def test_shuffle(mode: str, wanted: Callable[[int], int]) -> None:
    found = result(small(X, ir.Shuffle("y", "i32", "x0", mode, const(3)), put("y")))
    assert found[:64].tolist() == [wanted(t) for t in range(64)]


ONE = ir.Let("one", "bool", "eq", ("x0", ir.Lit("i32", 5)))


def test_a_warp_with_a_lane_that_holds_goes_together() -> None:
    s = small(
        X, ONE, ir.Declare("y", "i32", ir.Lit("i32", 0)), ir.If((ir.AnyLane("one"),), (ir.Set("y", "i32", "mov", ("x0",)),)), put("y")
    )
    assert result(s)[:64].tolist() == [*range(32), *[0] * 32]


def test_a_vote_in_a_divergent_warp() -> None:
    s = small(X, ONE, ir.If((ir.Cmp(TID, "<", const(16)), ir.AnyLane("one")), (put("x0"),)))
    assert fault(s, s.kernel).kind == "divergence"


def test_misaligned_vector() -> None:
    s = small(X, ir.Load(("a", "b"), "i32", "global", "x", var("x0")))
    assert fault(s, s.kernel).why == "x[1] by thread 1 of block 0 is not a multiple of 2"


def test_named_barriers_hand_work_between_roles() -> None:
    give = (X, ir.Store(("x0",), "i32", "shared", "s", TID), ir.Barrier(1, 64, wait=False))
    take = (ir.Barrier(1, 64), ir.Load(("y",), "i32", "shared", "s", TID - 32), put("y", TID - 32))
    s = small(ir.Role(((0, 1), (1, 1)), (give, take)))
    assert result(s)[:32].tolist() == list(range(32))
    assert fault(s, small(ir.Role(((0, 1), (1, 1)), (give, take[1:]))).kernel).kind == "race"


def test_roles_that_wait_for_each_other_are_a_deadlock() -> None:
    one, two = (ir.Barrier(1, 64), ir.Barrier(2, 64)), (ir.Barrier(2, 64), ir.Barrier(1, 64))
    s = small(ir.Role(((0, 1), (1, 1)), (one, two)))
    assert fault(s, s.kernel).kind == "deadlock"


def test_a_loop_whose_bounds_differ_between_threads() -> None:
    body = (
        ir.Declare("n", "i32", ir.Lit("i32", 0)),
        ir.For("i", const(0), TID, 1, (ir.Set("n", "i32", "add", ("n", ir.Lit("i32", 1))),)),
        put("n"),
    )
    assert result(small(*body))[:64].tolist() == list(range(64))


def test_atomics_give_each_thread_its_own_old_value() -> None:
    zero = ir.If((ir.Cmp(TID, "==", const(0)),), (ir.Store((ir.Lit("i32", 0),), "i32", "shared", "s", const(0)),))
    body = (zero, ir.Barrier(), ir.Atomic("old", "shared", "s", const(0), ir.Lit("i32", 1)), put("old"))
    assert sorted(result(small(*body))[:64].tolist()) == list(range(64))


def test_return_ends_a_block_alone() -> None:
    s = small(X, ir.If((ir.Cmp(var("bx"), "==", const(0)),), (ir.Return(),)), put("x0"))
    arrays = buffers(s, s.inputs(np.random.default_rng(0)))
    simulate.run(replace(s.kernel, grid=(2, 1, 1)), arrays)
    assert arrays["o"][:64].tolist() == list(range(64))
