"""Every plan computes what its program says, wherever it is cut."""

from __future__ import annotations

from random import Random

import pytest

from emmy_eq import rules
from emmy_eq.egraph import saturate
from emmy_eq.extract.plan import search
from emmy_eq.extract.targets import target
from emmy_eq.to_terms import to_terms

from .plan_checks import check_values, inputs, plan, program
from .random_programs import build
from .term_checks import inputs_of

# Name -> code and the kernels at place auto.
PROGRAMS = {
    "scan": ("torch.cumsum(torch.randn(4,9),1)", 1),
    "scan_with_epilogue": ("x=torch.randn(4,9); torch.cumsum(torch.exp(x),1)*x+torch.randn(9)", 1),
    "scan_of_a_scan": ("torch.cumsum(torch.cumsum(torch.randn(4,9),1),1)", 2),
    "sum_of_a_scan": ("torch.cumsum(torch.randn(4,9),1).sum(1)", 2),
    "scans_along_two_axes": ("x=torch.randn(4,9); torch.cumsum(x,1)+torch.cumsum(x,0)", 2),
    "scan_of_softmax": ("torch.cumsum(torch.softmax(torch.randn(4,9),1),1)", 1),
    "softmax_of_a_scan": ("torch.softmax(torch.cumsum(torch.randn(4,9),1),1)", 2),
    "scan_read_with_a_stride": ("torch.cumsum(torch.randn(4,8),1)[:,::2]", 2),
    "embedding": ("torch.nn.functional.embedding(torch.tensor([[1,2],[3,0]]), torch.randn(5,7))", 1),
    "gather_of_a_product": ("x=torch.randn(6,4); i=torch.tensor([2,0,1]); (x@torch.randn(4,3))[i]", 2),
    "statistic_and_row": ("x=torch.randn(4,9); (x.sum(1), x/x.sum(1,keepdim=True))", 1),
    "value_and_position": ("torch.randn(4,9).max(1)", 1),
    "one_value_twice": ("x=torch.randn(4,9); y=x*2; (y,y,y.t())", 1),
    "copy": ("torch.randn(4,9)*1", 1),
    "transpose": ("torch.randn(4,9).t().contiguous()", 1),
    "expanded": ("torch.randn(4,1).expand(4,5)*1.5", 1),
    "constant": ("torch.ones(3,4)*2", 1),
    "total": ("torch.randn(30).sum()", 1),
    "gram": ("x=torch.randn(5,6); x@x.t()", 1),
    "self_attention": ("x=torch.randn(5,6); torch.softmax(x@x.t(),-1)@x", 1),
    "causal_attention": ("q=torch.randn(2,3,5,4)\ntorch.nn.functional.scaled_dot_product_attention(q,q,q,is_causal=True)", 1),
    "layer_norm": ("torch.nn.functional.layer_norm(torch.randn(4,16),(16,),torch.randn(16),torch.randn(16))", 1),
    "group_norm": ("torch.nn.functional.group_norm(torch.randn(2,4,3,3),2,torch.randn(4),torch.randn(4))", 1),
    "cross_entropy": ("torch.nn.functional.cross_entropy(torch.randn(4,9), torch.tensor([1,2,3,8]))", None),
    "convolution": ("torch.nn.functional.conv2d(torch.randn(1,2,5,5), torch.randn(3,2,3,3), padding=1)", 1),
    "half_precision": ("x=torch.randn(6,8,dtype=torch.bfloat16); torch.relu(x@torch.randn(8,5,dtype=torch.bfloat16))*2", 1),
    "empty_sum": ("torch.randn(3,0).sum(1)", 1),
    "empty_result": ("torch.randn(0,3)*2", 1),
    "rows_and_columns": ("x=torch.randn(4,5).exp(); x/x.sum(1,keepdim=True)/x.sum(0,keepdim=True)", None),
    "roll_of_a_sum": ("torch.roll(torch.randn(4,6).sum(0),2)", 2),
}  # fmt: skip


@pytest.mark.parametrize("place", ["auto", "fuse", "cut"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, place: str) -> None:
    code, kernels = PROGRAMS[name]
    planned = plan(code, place)
    check_values(program(code)[0], planned, inputs(code))
    if place == "auto" and kernels is not None:
        assert len(planned.kernels) == kernels


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    source = build(Random(seed))
    terms = to_terms(source)
    saturated = saturate(terms, rules.active())
    for place in ("auto", "fuse", "cut"):
        check_values(terms, search(saturated, target("H200"), place), inputs_of(source))


def test_results_have_buffers_of_their_own() -> None:
    code, _ = PROGRAMS["one_value_twice"]
    loops = check_values(program(code)[0], plan(code), inputs(code))
    assert len({name for name, _, _, _ in loops.outputs}) == 3
    assert [b.name for k in loops.kernels for b in k.outputs] == [name for name, _, _, _ in loops.outputs]
    assert loops.temps == ()


def test_a_result_that_is_written_in_place_says_so() -> None:
    code = "x=torch.randn(4,3); x.add_(1); x*2"
    loops = check_values(program(code)[0], plan(code), inputs(code))
    assert [alias for _, _, _, alias in loops.outputs if alias is not None] == ["x"]
