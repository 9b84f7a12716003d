"""Tensor IR: text, verifier and interpreter."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from emmy_eq import tensor_ir
from emmy_eq.errors import InvalidInput, VerifyError
from emmy_eq.tensor_ir import parse, run, show, verify

SAMPLE = """\
x: f32[4,8] = input
table: bf16[5,8] = constant
ids: i64[3] = input
# model.py:3 in forward
half: f32[] = const 0.5
#
small: f32[] = const 1e-05
nothing: f32[] = const nan
other_nan: f32[] = const 0x7fc00001
low: f32[] = const -inf
yes: bool[] = const True
count: i64[8] = iota
place: i64[4,8] = count[d1]
edge: i64[] = const 3
inside: bool[4,8] = lt(place, edge)
shifted: f32[4,8] = x[d0, max(d1 - 1, 0)]
padded: f32[4,8] = where(inside, shifted, half)
top: f32[4] = reduce max(padded) over 1
best: i64[4] = reduce argmax(padded) over 1
running: f32[4,8] = scan sum(x) along 1
flat: f32[32] = x[d0//8, d0%8]
ids_view: i64[3,8] = ids[d0]
rows: bf16[3,8] = table[g0, d1] where ids_view
wide: f32[3,8] = cast(rows)
return top, best, running, flat, wide, padded -> x"""


def test_text_reads_back_what_it_prints() -> None:
    program = parse(SAMPLE)
    verify(program)
    assert show(program) == SAMPLE
    assert parse(show(program)) == program


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("y: f32[2] = add(x, n)", "arguments of dtypes"),
        ("y: f32[3] = neg(x)", "in shape"),
        ("y: f32[2] = nonsense(x)", "no row"),
        ("y: f32[] = reduce sum(x) over 1", "dims"),
        ("y: f32[1] = reduce sum(x) over 0", "is left"),
        ("y: f32[2] = x[d0 + 1]", "outside an extent"),
        ("y: f32[2] = x[d1]", "unknown variable"),
        ("y: bf16[2] = add(h, h)", "computes in bf16"),
        ("y: bool[2] = neg(x)", "does not give"),
        ("y: f32[2] = x[g0] where x", "not i64"),
    ],
)
def test_verifier_refuses(line: str, why: str) -> None:
    text = f"x: f32[2] = input\nn: i64[2] = input\nh: bf16[2] = input\n{line}\nreturn y"
    program = parse(text)
    with pytest.raises(VerifyError, match=why):
        verify(program)


def test_verifier_refuses_two_nodes_of_one_name() -> None:
    program = parse("x: f32[2] = input\ny: f32[2] = neg(x)\nreturn y")
    with pytest.raises(VerifyError, match="one name"):
        verify(tensor_ir.Program(program.nodes, program.outputs, ("x", "x"), program.sources))


@pytest.mark.parametrize(
    "text", ["", "x = input\nreturn x", "x: f32[2] = input", "x: f32[2] = input\nreturn y", "y: f32[2] = neg(x)\nreturn y"]
)
def test_unreadable_text_is_refused_with_the_line(text: str) -> None:
    with pytest.raises(VerifyError):
        parse(text)


def result(text: str, **inputs: object) -> list[object]:
    program = parse(text)
    verify(program)
    return [x.tolist() for x in run(program, {name: np.asarray(x) for name, x in inputs.items()})]


def test_argmax_takes_the_first_nan_else_the_first_best() -> None:
    text = "x: f32[3,3] = input\na: i64[3] = reduce argmax(x) over 1\nb: i64[] = reduce argmin(x) over 0,1\nreturn a, b"
    x = np.array([[1, 3, 3], [inf, nan, nan], [-inf, -inf, -inf]], np.float32)
    assert result(text, x=x) == [[1, 1, 0], 4]


def test_reductions_of_nothing_give_identities() -> None:
    reductions = "\n".join(f"{name}: f32[2] = reduce {name}(x) over 1" for name in ("sum", "prod", "max"))
    text = f"x: f32[2,0] = input\n{reductions}\nreturn sum, prod, max"
    assert result(text, x=np.zeros((2, 0), np.float32)) == [[0, 0], [1, 1], [-inf, -inf]]


def test_a_sum_of_products_is_the_reduction_of_the_product() -> None:
    """Contraction without the expanded product, for operands that vary along other dims, shared ones, and both."""
    text = """\
x: f64[3,4] = input
y: f64[4,5] = input
a: f64[3,5,4] = x[d0, d2]
b: f64[3,5,4] = y[d2, d1]
p: f64[3,5,4] = mul(a, b)
s: f64[3,5] = reduce sum(p) over 2
q: f64[3,5,4] = mul(a, a)
t: f64[3] = reduce sum(q) over 1,2
return s, t, p"""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((4, 5))
    s, t, p = run(parse(text), {"x": x, "y": y})
    np.testing.assert_allclose(s, x @ y, rtol=1e-14)
    np.testing.assert_allclose(t, 5 * (x * x).sum(1), rtol=1e-14)
    np.testing.assert_allclose(p.sum(2), s, rtol=1e-13)


def test_float64_mode_is_an_oracle() -> None:
    """1e8 + 1 - 1e8 is 0 in f32."""
    text = "x: f32[1] = input\nc: f32[] = const 1.0\ny: f32[1] = add(x, c)\nz: f32[1] = sub(y, x)\nh: bf16[1] = cast(z)\nreturn z, h"
    inputs = {"x": np.array([1e8], np.float32)}
    assert [x.item() for x in run(parse(text), inputs)] == [0, 0]
    exact = run(parse(text), inputs, float64=True)
    assert [x.item() for x in exact] == [1, 1]
    assert all(x.dtype == np.float64 for x in exact)


def test_casts_truncate_wrap_and_test_for_zero() -> None:
    text = "x: f32[4] = input\na: i32[4] = cast(x)\nb: u8[4] = cast(x)\nc: bool[4] = cast(x)\nreturn a, b, c"
    assert result(text, x=np.array([-2.7, 300, 0, nan], np.float32))[1][:3] == [254, 44, 0]  # type: ignore[index]
    assert result(text, x=np.array([-2.7, 0.5, -0.0, nan], np.float32))[2] == [True, True, False, True]


def test_a_gather_out_of_bounds_is_an_error() -> None:
    text = "t: f32[2] = input\ni: i64[1] = input\ny: f32[1] = t[g0] where i\nreturn y"
    with pytest.raises(InvalidInput, match="out of bounds"):
        result(text, t=np.zeros(2, np.float32), i=[2])


@pytest.mark.parametrize("x", [np.zeros(3, np.float32), np.zeros(2, np.float64)])
def test_inputs_must_have_the_stated_type(x: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    with pytest.raises(InvalidInput, match="input x"):
        run(parse("x: f32[2] = input\nreturn x"), {"x": x})
