"""Tile IR and its schedule rows: one spelling, refusals with a reason, the kinds of folds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emmy_eq.codegen import schedule, tile_ir
from emmy_eq.codegen.families import families, schedules
from emmy_eq.codegen.schedule import Schedule, Split, Stage
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.targets import target
from tests import tile_kernels as kernels

power = st.sampled_from([1, 2, 4, 8])


@st.composite
def splits(draw: st.DrawFn, reduce: bool) -> Split:
    threads = draw(power)
    return Split(
        blocks=draw(st.integers(1, 4)) if reduce else 1,
        steps=draw(st.sampled_from([0, 1])) if reduce else draw(st.integers(1, 3)),
        regs=draw(st.integers(1, 5)),
        threads=threads,
        slow=threads > 1 and draw(st.booleans()),
        vector=draw(power),
    )


@st.composite
def rows(draw: st.DrawFn) -> Schedule:
    return Schedule(
        threads=draw(st.sampled_from([64, 256])),
        tile=tuple((f"i{n}", draw(splits(False))) for n in range(draw(st.integers(0, 2)))),
        reduce=tuple((f"k{n}", draw(splits(True))) for n in range(draw(st.integers(0, 2)))),
        stage=draw(st.sampled_from([Stage(), Stage(1, "shared"), Stage(2, "shared")])),
        raster=draw(st.sampled_from(["row", "late", "g8"])),
        resident=draw(st.integers(0, 2)),
    )


@given(rows())
def test_row_reads_back(row: Schedule) -> None:
    assert schedule.parse(schedule.show(row)) == row


def test_canonical_spelling() -> None:
    text = "RASTER=row STAGE=2:shared REDUCE=i2:r16.s TILE=i0:v4.t16.r2 WORK=t256.b2"
    assert schedule.show(schedule.parse(text)) == "WORK=t256.b2 TILE=i0:r2.t16.v4 REDUCE=i2:s.r16 STAGE=2:shared RASTER=row"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("TILE=i0:t4", "number of threads"),
        ("WORK=t100", "power of two"),
        ("WORK=t64 TILE=i0:t128", "needs 128 threads"),
        ("WORK=t64 TILE=i0:t3", "powers of two"),
        ("WORK=t64 TILE=i0:s", "number of steps"),
        ("WORK=t64 TILE=i0:t4,i0:t4", "split twice"),
        ("WORK=t64 TILE=i0", "AXIS:PARTS"),
        ("WORK=t64 TILE=i0:x4", "its parts are"),
        ("WORK=t64 STAGE=3:shared", "depth 1 or 2"),
        ("WORK=t64 STAGE=2:bulk", "shared"),
        ("WORK=t64 RASTER=zigzag", "row, late, or gN"),
        ("WORK=t64 WORK=t64", "given twice"),
        ("WARPS=4", "items are"),
    ],
)
def test_illegal_row_says_why(row: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        schedule.parse(row)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("WORK=t64 TILE=i1:t4", "axes it may split are i0"),
        ("WORK=t64 REDUCE=i0:t4", "axes it may split are i1"),
        ("WORK=t64 REDUCE=i1:t32", "covers 32 of 100"),
        ("WORK=t64 REDUCE=i1:b2.s.t32", "stays in one block"),
    ],
)
def test_row_must_fit_the_kernel(row: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        tile_ir.to_tile(kernels.kernel(kernels.softmax(4, 100)), schedule.parse(row))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (kernels.add_bias(4, 8), ["map"]),
        (kernels.softmax(4, 8), ["map", "reduction", "reduction", "map"]),
        (kernels.matmul(4, 8, 8), ["map", "contraction"]),
        (kernels.attention(1, 8, 8, 8), ["map", "twisted", "contraction"]),
        (kernels.cumsum(4, 8), ["map", "scan"]),
    ],
)
def test_kinds_of_folds(text: str, kinds: list[str]) -> None:
    tile = tile_ir.to_tile(kernels.kernel(text), Schedule(32))
    known = tile_ir.values(tile.body)
    assert [tile_ir.kind(f, known) for f in tile_ir.walk(tile.body) if isinstance(f, tile_ir.Fold)] == kinds


def test_equal_statements_are_one_value() -> None:
    """A row that three loops load is one value, so that it can stay in registers."""
    known = tile_ir.values(tile_ir.to_tile(kernels.kernel(kernels.softmax(4, 8)), Schedule(32)).body)
    assert known["v0"] is known["v2"] is known["v6"]
    assert known["v4"] is known["v8"]


def test_show() -> None:
    tile = tile_ir.to_tile(kernels.kernel(kernels.row_sum(4, 64)), schedule.parse("WORK=t64 TILE=i0:t2 REDUCE=i1:r2.t32"))
    assert tile_ir.show(tile).splitlines() == [
        "tile row_sum [WORK=t64 TILE=i0:t2 REDUCE=i1:r2.t32 RASTER=row]",
        "  in x: f32[4,64]",
        "  out out: f32[4]",
        "  map i0 < 4:",
        "    reduction i1 < 64:",
        "      v0 = load x[i0, i1]",
        "      v1 = exp v0",
        "      carry v2 = sum(v1)",
        "    store out[i0] = v2",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (kernels.exp_neg(1 << 26), "WORK=t256 TILE=i0:t256.v4 RASTER=row"),
        (kernels.softmax(57344, 2048), "WORK=t128 TILE=i0:t4 REDUCE=i1:r16.t32.v4 RASTER=row"),
        (kernels.full_sum(1 << 28), "WORK=t256 REDUCE=i0:b528.s.r4.t256.v4 RASTER=row"),
        (kernels.matmul(4096, 4096, 4096), "WORK=t256 TILE=i1:w8.m16,i0:r16.n8 REDUCE=i2:s.r4.k8x3 STAGE=4:tma RASTER=g8"),
        (
            kernels.floats(4096, 4096, 4096, "km", "kn"),
            "WORK=t256.b2 TILE=i0:r2.t16.v4,i1:r2.t16.v4 REDUCE=i2:b2.s.r4.v4 STAGE=2:shared RASTER=row",
        ),
        (
            kernels.attention(32, 1024, 1024, 64),
            "WORK=t256 TILE=i1:r2.t16.v4,i2:t16.v4 REDUCE=i4:s.r2.t16.v4,i3:s.r16 STAGE=1:shared RASTER=row",
        ),
    ],
)
def test_default_row_on_h200(text: str, first: str) -> None:
    assert schedule.show(schedules(kernels.kernel(text), target("H200"))[0]) == first


def test_rows_are_distinct_and_end_with_the_one_that_always_lowers() -> None:
    kernel = kernels.kernel(kernels.matmul(64, 64, 64))
    found = schedules(kernel, target("A100"))
    assert len(set(found)) == len(found)
    assert found[-1].stage == Stage()
    assert list(families())[-1] == "default"
