"""The accuracy contracts on a GPU: bounds of approximations, three tf32 products beside cuBLAS, the bits of ``strict``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import emmy_eq
from emmy_eq.execute import EAGER_FACTOR, ROUNDINGS, distance
from emmy_eq.ops import ops
from tests.gpu.test_kernels import here

EXACT: dict[str, Callable[..., Tensor]] = {
    "exp": torch.exp, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt, "reciprocal": torch.reciprocal, "div": torch.div,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, row in ops().items() if row.fast is not None])
def test_approximations_keep_their_bounds(name: str) -> None:
    """Over all exponents, and densely where functions vary."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (1 << 20,), generator=generator, device="cuda").to(torch.int32)
    x = torch.cat((bits.view(torch.float32), 40 * torch.rand(1 << 20, generator=generator, device="cuda") - 20))
    inputs = (x, x.flip(0)) if name == "div" else (x,)
    made = emmy_eq.compile(EXACT[name], inputs, target=here().arch, accuracy="fast")
    assert f"fast_{name}" in made.show("loop")
    got, want = made(*inputs).double(), EXACT[name](*(i.double() for i in inputs))
    bound = ops()[name].fast
    assert bound is not None
    special = want.float().double()
    finite = special.isfinite()
    assert torch.equal(got[~finite].nan_to_num(), special[~finite].nan_to_num())
    assert ((got - want).abs() <= bound.relative * want.abs() + bound.absolute)[finite].all()


@pytest.mark.parametrize("shape", [(512, 384, 1000), (100, 77, 333), (64, 4096, 4096)])
@pytest.mark.parametrize("drawn", ["normal", "uniform", "lognormal", "small"])
def test_f32_products_are_as_near_as_eager(shape: tuple[int, int, int], drawn: str) -> None:
    m, n, k = shape
    generator = torch.Generator(device="cuda").manual_seed(0)
    a, b = (torch.randn(size, generator=generator, device="cuda") for size in ((m, k), (k, n)))
    if drawn == "uniform":
        a, b = a.frac().abs(), b.frac().abs()
    elif drawn == "lognormal":
        a, b = a.exp(), b.exp()
    elif drawn == "small":
        a, b = a * 1e-33, b * 1e30
    made = emmy_eq.compile(torch.matmul, (a, b), target=here().arch)
    want = a.double() @ b.double()
    eps = torch.finfo(torch.float32).eps
    assert distance(made(a, b), want) <= max(EAGER_FACTOR * distance(a @ b, want), ROUNDINGS * eps)


def test_f32_products_of_operands_near_the_smallest_lose_what_the_page_says() -> None:
    """docs/accuracy.md: what an operand has below 2^-136 is lost, so each product is off by less than that times the other factor."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    a = 1e-37 * torch.randn((512, 384), generator=generator, device="cuda")
    b = 1e30 * torch.randn((384, 1000), generator=generator, device="cuda")
    made = emmy_eq.compile(torch.matmul, (a, b), target=here().arch)
    want = a.double() @ b.double()
    lost = (2.0**-136 * b.double().abs().sum(0)).expand_as(want)
    rounding = max(EAGER_FACTOR * distance(a @ b, want), ROUNDINGS * torch.finfo(torch.float32).eps)
    assert (made(a, b).double() - want).norm() <= lost.norm() + rounding * want.norm()


@pytest.mark.parametrize("place", ["cut", "fuse"])
def test_strict_gives_the_same_bits_however_it_is_cut(place: str) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(33, 129, device="cuda"), torch.randn(129, 70, device="cuda").half())

    def program(x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(torch.nn.functional.layer_norm(x.half() @ y, (70,)), -1)

    one, other = (emmy_eq.compile(program, inputs, target=here().arch, accuracy="strict", place=p)(*inputs) for p in ("auto", place))
    assert torch.equal(one.view(torch.int16), other.view(torch.int16))
