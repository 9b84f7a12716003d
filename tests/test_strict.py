"""``strict``: kernels in the simulator give the bits of Tensor IR interpreted operation by operation, sums in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import emmy_eq
from emmy_eq import tensor_ir
from emmy_eq.arrays import to_numpy
from emmy_eq.codegen import kernel_ir, schedule, tile_ir
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.errors import InvalidInput
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture_code

LINES = (Path(__file__).parent / "data" / "op_cases.txt").read_text().splitlines()
EXPRESSIONS = [e for line in LINES for e in line.split("; ")]
SETUP = """
x = torch.randn(3, 4, 5)
y = torch.randn(4, 5)
n = torch.randint(-9, 9, (3, 4, 5))
m = torch.randint(1, 5, (4, 5))
x.view(-1)[:7] = torch.tensor([0.0, -0.0, {special} 1e-40, 3e38, -1e38])
y.view(-1)[3:6] = torch.tensor([-0.0, 1e-42, -3e38])
"""
ODD = """
torch.randn(33, 37) @ torch.randn(37, 19)
torch.randn(33, 137).half() @ torch.randn(137, 70).half()
torch.relu(torch.randn(65, 130).bfloat16() @ torch.randn(70, 130).bfloat16().t() + torch.randn(70).bfloat16())
torch.randn(50, 33).t().sum()
torch.randn(5, 10, 33).sum((0, 2))
torch.randn(5, 10, 33).permute(2, 0, 1).reshape(-1).sum()
torch.full((3, 5), -0.0).sum(1) * torch.randn(0, 3).sum(0)
F.layer_norm(torch.randn(7, 301).half(), (301,))
F.rms_norm(torch.randn(7, 301).bfloat16(), (301,))
torch.randn(7, 301).softmax(-1)
torch.randn(7, 301).cumsum(1) + torch.randn(7, 301).cumprod(0)
F.scaled_dot_product_attention(torch.randn(1, 2, 17, 8), torch.randn(1, 2, 19, 8), torch.randn(1, 2, 19, 8))
F.cross_entropy(torch.randn(9, 50), torch.arange(9))
torch.randn(9, 50).var(1) + torch.randn(9, 50).logsumexp(1)
"""


def compiled(code: str) -> Compiled:
    return Compiled(lambda: capture_code(code), Options(accuracy="strict"))


def bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of every element; all NaNs are alike."""
    if x.dtype.kind in "fV":
        x = np.where(np.isnan(x.astype(np.float64)), np.asarray(np.nan).astype(x.dtype), x)
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def assert_same_bits(c: Compiled) -> None:
    given = c.torch_ir.examples()
    want = tensor_ir.run(c.tensor_ir, {name: to_numpy(x) for name, x in given.items()})
    for got, reference in zip(c.run({name: x.clone() for name, x in given.items()}), want, strict=True):
        np.testing.assert_array_equal(bits(to_numpy(got)), bits(reference))


@pytest.mark.parametrize("first", range(4))
def test_operations(first: int) -> None:
    """Infinity and NaN become integers in the kernels as on a GPU, which the interpreter leaves to NumPy."""
    torch.manual_seed(first)
    for expression in EXPRESSIONS[first::16]:
        special = "" if ".to(torch." in expression or "int()" in expression else "float('inf'), float('nan'),"
        assert_same_bits(compiled(SETUP.format(special=special + "0.5," * (0 if special else 2)) + expression))


@pytest.mark.parametrize("code", ODD.strip().splitlines())
def test_odd_shapes(code: str) -> None:
    assert_same_bits(compiled(code))


def test_no_kernel_contracts_or_uses_tensor_cores() -> None:
    made = compiled("torch.randn(64, 64).half() @ torch.randn(64, 64).half()")
    statements = [s for k in made.kernel_ir for s in walk.statements(k.body)]
    assert not any(isinstance(s, kernel_ir.Mma) or getattr(s, "op", "") == "fma" for s in statements)


@pytest.mark.parametrize("row", ["WORK=t32 REDUCE=i1:t32", "WORK=t32 REDUCE=i1:b2.s", "WORK=t64 REDUCE=i1:s.w2"])
def test_a_row_that_divides_a_sum_is_refused(row: str) -> None:
    (kernel,) = compiled("torch.randn(8, 64).sum(1)").loop_ir.kernels
    with pytest.raises(InvalidInput, match="one thread's, an element after the other"):
        tile_ir.to_tile(kernel, schedule.parse(row))


def test_the_order_is_that_of_the_tensor() -> None:
    """Of a transposed tensor: not that of its memory."""
    x = torch.tensor([[1e8, 1.0], [-1e8, 1.0]])
    assert float(emmy_eq.compile(lambda x: x.sum(), (x,), accuracy="strict")(x)) == 1.0
    assert float(emmy_eq.compile(lambda x: x.t().sum(), (x,), accuracy="strict")(x)) == 2.0
