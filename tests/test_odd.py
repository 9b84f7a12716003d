"""Odd programs through the whole path: what eager gives, or a clear refusal.  Found by trying to break the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import emmy_eq
from emmy_eq import torch_ir
from emmy_eq.errors import EmmyError
from emmy_eq.execute import run_example
from emmy_eq.pipeline import Compiled, Options

I8, U8, I32, I64 = torch.int8, torch.uint8, torch.int32, torch.int64
HALVES = (torch.float16, torch.bfloat16)


def check(f: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """To the bit, as eager on the CPU: only for operations that round exactly or not at all."""
    torch.testing.assert_close(emmy_eq.compile(f, inputs, **options)(*inputs), f(*inputs), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_scalar_compared_with_16_bits_is_rounded_to_them(dtype: torch.dtype) -> None:
    check(lambda x: (x == 0.1, x >= 0.1, x < 0.1, torch.where(x == 0.1, 1, 0)), torch.tensor([0.1, 0.2]).to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_the_divisor_of_a_remainder_of_16_bits_is_rounded_to_them(dtype: torch.dtype) -> None:
    check(lambda x: (x.remainder(0.1), torch.fmod(x, 0.1)), torch.tensor([0.1, 0.3, 2.0]).to(dtype))


@pytest.mark.parametrize("dtype", [I8, U8])
def test_a_scalar_wraps_to_the_integers_that_it_meets(dtype: torch.dtype) -> None:
    check(lambda x: (x < 300, x == 256, x // 300, x % 300, x + 300, x * 257), torch.tensor([0, 43, 44, 100, 127], dtype=dtype))


@pytest.mark.parametrize("dtype", [I8, U8, torch.int16, I32, I64])
def test_shifts_by_any_amount(dtype: torch.dtype) -> None:
    x = torch.tensor([1, 3, 100, 127, 64, 7], dtype=dtype)
    amount = torch.tensor([0, 3, 7, 31, 64, 33], dtype=dtype)
    signed = amount if dtype == U8 else -amount
    check(lambda x, a, s: (x << a, x >> a, (~x) >> a, x << s, (~x) >> s, x << 9), x, amount, signed)


def test_a_chain_of_products_and_norms_of_tiny_rows_is_no_nest_of_recomputation() -> None:
    """Six folds in one another are computed again at every step around them, so they cost more than a launch."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    compiled = emmy_eq.compile(layer, (x,))
    assert max(_folds(k.body) for k in compiled.loop_ir.kernels) <= 4
    torch.testing.assert_close(compiled(x), layer(x))  # f32 sums of 16 terms: the default tolerances


def _folds(body: Any) -> int:
    return max((_folds(s.body) + (type(s).__name__ == "Fold") for s in body if hasattr(s, "body")), default=0)


@pytest.mark.parametrize("narrow", HALVES)
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_a_round_trip_that_the_program_states_rounds(narrow: torch.dtype, wide: torch.dtype) -> None:
    """The low part of a split in two is what the rounding lost, not 0."""
    x = torch.tensor([65519.0, 65520.0, -1e6, 1e-8, 6e-8, 0.1, float("nan"), 3.3, -0.0], dtype=wide)
    check(lambda x: (x.to(narrow).to(wide), x - x.to(narrow).to(wide), x - x.to(narrow), x.to(narrow)), x)
    check(lambda x: (x.to(narrow).view(3, 3).t().to(wide) * 2, torch.cat([x, x.to(narrow)]), x.to(narrow) == x), x)
    check(lambda x: x.to(torch.bfloat16).to(torch.float16).to(torch.bfloat16).to(wide), x)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(EmmyError) as caught:
        call()
    return str(caught.value)


def test_what_no_program_or_argument_can_be_is_said() -> None:
    x = torch.ones(3, 5)
    compiled = emmy_eq.compile(lambda x, y: x + 1, (x, x))
    assert "write (x,) for one tensor" in refusal(lambda: emmy_eq.compile(lambda x: x, x))  # type: ignore[arg-type]
    assert "'x + 1': a function or a module is compiled" in refusal(lambda: emmy_eq.compile("x + 1", (x,)))  # type: ignore[arg-type]
    assert "1 argument where 2 were compiled" in refusal(lambda: compiled(x))
    assert "None was given where a tensor was compiled in" in refusal(lambda: compiled(x, None))
    assert "a torch.sparse_coo tensor on cpu" in refusal(lambda: compiled(x, x.to_sparse()))
    assert "tensor on meta" in refusal(lambda: compiled(x, torch.empty(3, 5, device="meta")))


def test_an_operation_of_torch_itself_is_placed_where_it_is_compiled() -> None:
    assert "test_odd.py" in refusal(lambda: emmy_eq.compile(torch.asinh, (torch.ones(3),)))


def test_strides_count_from_the_begin_of_the_memory() -> None:
    """Not from the view that `as_strided` is called on."""
    x = torch.arange(35.0).reshape(5, 7)
    check(lambda x: x.t()[1:].as_strided((3, 3), (1, 3), 2), x)
    check(lambda x: x[2:].as_strided((2, 2), (7, 1)), x)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "code",
    [
        "m = torch.full((136, 136), LOWEST, dtype=BF16).triu(1); F.scaled_dot_product_attention(Q, K, V, attn_mask=m)",
        "m = torch.full((1, 1, 1, 200), LOWEST, dtype=BF16); m[..., :50] = 0; F.scaled_dot_product_attention(Q, R, S, attn_mask=m)",
        "m = torch.full((1, 1, 1, 136), LOWEST, dtype=BF16); m[..., 100:] = 0; F.scaled_dot_product_attention(Q, K, V, attn_mask=m)",
        "q = torch.full((64, 64), 60000.0, dtype=torch.float16); F.scaled_dot_product_attention(q, q, q)",
        "F.scaled_dot_product_attention(Q * 200, K * torch.arange(136).mul(0.02).to(BF16)[:, None], V)",  # keys grow far from 0, rows apart
        "F.scaled_dot_product_attention(Q, K, V, scale=-0.5)",
        "m = torch.zeros(136, 136, dtype=BF16); m[:, :100] = -10000; F.scaled_dot_product_attention(Q, K, V, attn_mask=m)",
        "m = torch.full((136, 129), LOWEST, dtype=BF16); F.scaled_dot_product_attention(Q, K[:, :, :129], V[:, :, :129], attn_mask=m)",
        "m = torch.full((136, 136), LOWEST, dtype=BF16); m[:, 8:] = -torch.inf; F.scaled_dot_product_attention(Q, K, V, attn_mask=m)",
        "torch.full((40, 300), LOWEST, dtype=BF16).softmax(-1) @ torch.randn(300, 16, dtype=BF16)",
    ],
)
def test_16_bit_weights_of_scores_near_the_largest_number(code: str, target: str) -> None:
    """A step that sees only masked scores has weights of 1 under its own key, which the next step's key makes 0: none may overflow."""
    tensors = "Q, K, V = (torch.randn(1, 2, 136, 64, dtype=BF16) for _ in range(3)); R, S = torch.randn(2, 1, 2, 200, 64, dtype=BF16); "
    names = {"LOWEST": "torch.finfo(BF16).min", "BF16": "torch.bfloat16"}
    for name, value in names.items():
        code, tensors = code.replace(name, value), tensors.replace(name, value)
    program = torch_ir.capture_code((tensors if "Q" in code else "") + code)
    assert run_example(Compiled(lambda: program, Options(target=target)), "sim", check=True).passed


@pytest.mark.parametrize("accuracy", ["strict", "default"])
@pytest.mark.parametrize("odd", [torch.inf, torch.nan])
def test_a_score_that_is_masked_does_not_count(odd: float, accuracy: str) -> None:
    """Not even where it is +inf or NaN, to which torch on a CPU adds -inf."""
    q, k, v = torch.ones(2, 4), torch.ones(2, 4), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    k[1, 0] = odd
    lower = torch.ones(2, 2, dtype=torch.bool).tril()
    for mask in ({"is_causal": True}, {"attn_mask": lower}):
        found = emmy_eq.compile(lambda q, k, v, mask=mask: F.scaled_dot_product_attention(q, k, v, **mask), (q, k, v), accuracy=accuracy)
        assert found(q, k, v)[0].tolist() == [1.0, 2.0], mask


def test_a_row_for_a_program_without_elements_has_no_kernel() -> None:
    assert "the program launches no kernel" in refusal(
        lambda: emmy_eq.compile(lambda x: x.sum(1), (torch.ones(0, 8),), schedule="WORK=t32")
    )


def test_a_position_in_each_of_no_columns_is_no_position() -> None:
    program = torch_ir.capture_code("torch.ones(2, 0, dtype=torch.int32).max(0)[1]")
    assert run_example(Compiled(lambda: program, Options()), "sim", check=True).passed
