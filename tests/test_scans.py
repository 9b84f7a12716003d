"""Scans with a state of several components: derived from naive spellings, in one pass, and right against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emmy_eq import loop_ir, tensor_ir
from emmy_eq.arrays import to_numpy
from emmy_eq.ops import twists
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture_code
from emmy_eq.verify.audit import audit

SPELLINGS = {
    "logcumsumexp": "torch.logcumsumexp(x, {d})",
    "under the row's maximum": "m=x.amax({d},keepdim=True); (x-m).exp().cumsum({d}).log()+m",
    "recurrence": "p=(x.abs()*0.2+0.8).cumprod({d}); p*(x/p).cumsum({d})",
    "recurrence from a start": "p=(x.abs()*0.2+0.8).cumprod({d}); p*x.narrow({d},0,1)+p*(x/p).cumsum({d})",
    "recurrence of logarithms": "p=(x.abs()*-0.1).cumsum({d}); (x*(-p).exp()).cumsum({d})*p.exp()",
}
STATES = {"logcumsumexp": "softmax", "under the row's maximum": "softmax"}
SHAPES = {"a step": ("3,100", 1), "steps": ("2,1500", 1), "a warp": ("65,9", 1), "columns": ("300,5", 0), "one": ("4,1", 1)}


def compiled(code: str) -> Compiled:
    return Compiled(lambda: capture_code(code), Options())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SPELLINGS)
def test_one_pass_gives_the_values(name: str, shape: str) -> None:
    size, dim = SHAPES[shape]
    made = compiled(f"x=torch.randn({size}); " + SPELLINGS[name].format(d=dim))
    (kernel,) = made.loop_ir.kernels
    scanned = [s for s in loop_ir.walk(kernel.body) if isinstance(s, loop_ir.Fold)]
    if shape != "one":
        assert [tuple(c.name for c in s.carries) for s in scanned] == [(STATES.get(name, "recurrence"),)]
    given = made.torch_ir.examples()
    (exact,) = tensor_ir.run(made.tensor_ir, {n: to_numpy(x) for n, x in given.items()}, float64=True)
    (got,) = made.run(given)
    # A state is joined from parts of up to 1500 elements, each join with an exponential or two products.
    np.testing.assert_allclose(to_numpy(got), exact, rtol=2e-5, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("name", SPELLINGS)
def test_all_equal_forms_agree_modulo_primes(name: str) -> None:
    """Two and three samples of the scanned axis, whose weights stand for the others."""
    graph = compiled("x=torch.randn(3,50); " + SPELLINGS[name].format(d=1)).egraph
    assert audit(graph, samples=2) is None
    assert audit(graph, samples=3, key=5) is None


def test_every_prefix_has_its_own_shift() -> None:
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[-inf, -inf, 1, 2, inf, 3], [1, 2, nan, 3, 4, 5], [-inf] * 6, [-500, 0, 500, 200, 1e30, 1e30]])
    (got,) = compiled("torch.logcumsumexp(torch.randn(4,6),1)").run({"x0": x})
    torch.testing.assert_close(got, torch.logcumsumexp(x, 1), equal_nan=True)


def test_a_recurrence_outlives_the_product_of_its_factors() -> None:
    a, b = torch.full((400,), 0.5), torch.ones(400)
    p = a.cumprod(0)
    assert not torch.isfinite(p * (b / p).cumsum(0)).all()
    made = compiled("p=torch.rand(400).cumprod(0); p*(torch.ones(400)/p).cumsum(0)")
    (got,) = made.run(dict(zip(made.torch_ir.examples(), (a, b), strict=True)))
    np.testing.assert_allclose(to_numpy(got), 2 - 0.5 ** np.arange(400), rtol=1e-6)


def test_a_sum_and_a_maximum_of_one_operand_share_the_state() -> None:
    (kernel,) = compiled("x=torch.randn(4,50); torch.logcumsumexp(x,1), torch.cummax(x,1).values").loop_ir.kernels
    assert [len(s.carries) for s in loop_ir.walk(kernel.body) if isinstance(s, loop_ir.Fold)] == [1]


def test_rows_that_only_scan_or_only_fold() -> None:
    assert {name for name, row in twists().items() if not row.folds} == {"recurrence"}
    assert {name for name, row in twists().items() if not row.scans} == {"variance"}
    assert {name for name, row in twists().items() if row.exponential} == {"softmax", "fast_softmax"}
