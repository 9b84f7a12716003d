"""The small parts under the pipeline: stages, the error measure, the module for eager and torch.compile, tables."""

from __future__ import annotations

import time

import pytest
import torch

from emmy_eq import torch_ir
from emmy_eq.arrays import to_numpy, to_torch
from emmy_eq.execute import _Tf32, checked, distance, graph_module, in_float64, run_example
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.stage import stage
from emmy_eq.text import quantity, table
from emmy_eq.torch_ir import capture, capture_code


class Chain:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []
        self.watched: list[tuple[str, bool]] = []

    def watch(self, name: str, begins: bool) -> None:
        self.watched.append((name, begins))

    @stage
    def first(self) -> int:
        time.sleep(0.02)
        return 1

    @stage
    def second(self) -> int:
        return self.first + 1


def test_a_stage_is_timed_without_the_stages_that_it_asks_for() -> None:
    chain = Chain()
    assert chain.second == 2
    assert chain.seconds["first"] >= 0.02
    assert chain.seconds["second"] < 0.02
    assert chain.second == 2
    assert list(chain.seconds) == ["first", "second"]
    assert chain.watched == [("second", True), ("first", True), ("first", False), ("second", False)]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("result", "reference", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([NAN, 2.0], [NAN, 2.0], 0.0),
        ([NAN, 2.0], [1.0, 2.0], INF),
        ([1.0, 2.0], [NAN, 2.0], INF),
        ([INF, 2.0], [INF, 2.0], 0.0),
        ([-INF, 2.0], [INF, 2.0], INF),
        ([INF, 2.0], [1.0, 2.0], INF),
        ([INF, 2.0], [1e300, 2.0], 0.0),  # beyond float32: infinity is what the value rounds to
        ([], [], 0.0),
    ],
)
def test_distance(result: list[float], reference: list[float], expected: float) -> None:
    assert distance(torch.tensor(result), torch.tensor(reference, dtype=torch.float64)) == expected


def test_distance_of_integers_and_shapes() -> None:
    assert distance(torch.tensor([3, 4]), torch.tensor([3, 6])) == 2
    assert distance(torch.tensor([True]), torch.tensor([True])) == 0
    assert distance(torch.zeros(2), torch.zeros(3, dtype=torch.float64)) == INF


def test_where_eager_overflows_it_sets_no_limit() -> None:
    """The other positions are judged as ever, and so is a value where eager has none."""
    reference, eager = torch.tensor([100.0, 2.0], dtype=torch.float64), torch.tensor([INF, 2.0])
    found = {y: checked(torch.tensor(y), eager, reference) for y in ((100.0, 2.0), (INF, 2.0), (100.0, 2.5), (50.0, 2.0), (INF, 2.5))}
    assert [y for y, result in found.items() if result.passed] == [(100.0, 2.0), (INF, 2.0)]


def test_check_of_fast_knows_that_products_round_to_tf32() -> None:
    """A result as far off as eager with operands of 11 bits passes, but not under default; five times as far does not."""
    torch.manual_seed(0)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    reference, eager = x.double() @ y.double(), x @ y
    with _Tf32():  # type: ignore[no-untyped-call]
        coarse = x @ y
    off = distance(coarse, reference)
    assert 1e-5 < off < 2**-10
    assert checked(coarse, eager, reference, coarse).passed
    assert not checked(coarse, eager, reference).passed
    assert not checked((reference + 5 * off * reference.abs().max()).float(), eager, reference, coarse).passed
    code = "x = torch.randn(40, 64); x @ torch.randn(64, 24)"
    fast, default = (run_example(Compiled(lambda: capture_code(code), Options(accuracy=a)), "sim", check=True) for a in ("fast", "default"))
    assert fast.passed
    assert default.passed
    assert fast.outputs[0].limit > 100 * default.outputs[0].limit  # type: ignore[operator]


@pytest.mark.parametrize(
    "code",
    [
        "torch.softmax(torch.randn(3, 4), -1)",
        "v, i = torch.max(torch.randn(3, 4), 1)\nv + i",
        "torch.cat([torch.randn(2, 3), torch.randn(1, 3)]).half().sum(0)",
        "torch.randn(3, 4).to(torch.float16)",
    ],
)
def test_module_of_a_program_is_the_program(code: str) -> None:
    program = capture_code(code)
    examples = program.examples()
    found = graph_module(program)(*(examples[i.name] for i in program.inputs))
    torch.testing.assert_close(list(found), torch_ir.run(program))


def test_float64_reference_widens_the_casts_in_the_program_too() -> None:
    x = torch.randn(64)
    program = capture(lambda t: t.to(torch.bfloat16).sum(), (x,))
    (reference,) = in_float64(program, {program.inputs[0].name: x})
    torch.testing.assert_close(reference, x.double().sum(), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"])
def test_arrays_keep_every_bit(dtype: str) -> None:
    x = (torch.arange(-6, 6) * 1.5).reshape(3, 4).to(torch_ir.torch_dtype(dtype))
    assert torch.equal(to_torch(to_numpy(x), dtype), x)
    assert to_numpy(x.t()).shape == (4, 3)
    assert torch.equal(to_torch(to_numpy(x.t()), dtype), x.t())


def test_table_aligns_numbers_right() -> None:
    text = table(["name", "n"], [["a", "1"], ["bcd", "200"]])
    assert text.splitlines() == ["name    n", "----  ---", "a       1", "bcd   200"]


def test_words_that_begin_with_a_digit_stay_left() -> None:
    text = table(["operations", "identity", "bytes"], [["1 add, 2 load", "04f2", "512 B"], ["1 exp", "1062fc89", "25.6 kB"]])
    assert text.splitlines()[2:] == ["1 add, 2 load  04f2        512 B", "1 exp          1062fc89  25.6 kB"]


QUANTITIES = [(4.29e9, "FLOP", "4.29 GFLOP"), (512, "B", "512 B"), (1.5e3, "", "1.5 k"), (0, "", "0")]


@pytest.mark.parametrize(("value", "unit", "expected"), QUANTITIES)
def test_quantity(value: float, unit: str, expected: str) -> None:
    assert quantity(value, unit) == expected
