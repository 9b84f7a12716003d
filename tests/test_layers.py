"""Deep programs: planned in parts, equal layers once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from emmy_eq import layers, loop_ir
from emmy_eq.extract.climb import Search
from emmy_eq.extract.loops import to_loops
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.nest import Output
from emmy_eq.extract.plan import search
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture


class Residual(nn.Module):
    def __init__(self, layers: int, size: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(size), nn.Linear(size, 2 * size), nn.SiLU(), nn.Linear(2 * size, size)) for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def compiled(layers: int) -> tuple[Residual, Tensor, Compiled]:
    torch.manual_seed(0)
    model, x = Residual(layers).requires_grad_(False), torch.randn(8, 16)
    return model, x, Compiled(lambda: capture(model, (x,)), Options("H200"))


def test_equal_layers_are_one_program() -> None:
    model, x, deep = compiled(6)
    loop_ir.verify(deep.loop_ir)
    assert len(deep.layers) == 6
    assert len({id(kind) for kind, _ in deep.layers}) == 1
    assert deep.saturation.rows < compiled(2)[2].egraph.report.rows
    identities = [loop_ir.identity(k) for k in deep.loop_ir.kernels]
    assert len({k.name for k in deep.loop_ir.kernels}) == len(identities)
    assert [k.name for k in deep.kernel_ir] == [k.name for k in deep.distinct]
    assert len(deep.cuda) == len(set(identities)) == len(identities) / 6  # equal kernels are generated and compiled once
    # Sums of at most 32 float32 values of size 1, six layers deep, in another order.
    torch.testing.assert_close(deep(x), model(x), rtol=1e-4, atol=1e-5)


class Cached(nn.Module):
    """Layers that return what they computed, and all read what was computed before them."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        scale = (ids @ ids.T).sum(1, keepdim=True)
        kept = []
        for layer in self.layers:
            kept.append(layer(x * scale))
            x = x + torch.softmax(kept[-1], -1)
        return (x * 2, *kept, kept[0], x)


@pytest.mark.parametrize("place", ["auto", "linear_1=cut,softmax_2_exp=fuse"])
def test_layers_have_results_of_their_own_and_pins(place: str) -> None:
    torch.manual_seed(1)
    model, args = Cached(7).requires_grad_(False), (torch.randn(8, 16), torch.randn(8, 4))
    deep = Compiled(lambda: capture(model, args), Options("H200", place=place))
    loop_ir.verify(deep.loop_ir)
    kinds = {id(kind) for kind, _ in deep.layers}
    assert 1 < len(kinds) < len(deep.layers)
    assert all(b.name != "softmax_2_exp" for b in deep.loop_ir.temps)
    for found, expected in zip(deep(*args), model(*args), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)  # sums of 16 values of size 10, seven layers deep


def test_a_row_of_its_own_sets_an_equal_kernel_apart() -> None:
    model, x, deep = compiled(6)
    shared = next(launched.name for launched, (kernel, _) in zip(deep.launched, deep.calls, strict=True) if launched is not kernel)
    row = "WORK=t32 TILE=i0:t32 RASTER=row"
    apart = Compiled(lambda: capture(model, (x,)), Options("H200", schedule={shared: row}))
    assert {k.name for k in apart.distinct} - {k.name for k in deep.distinct} == {shared}
    assert str(next(t for t in apart.tile_ir if t.name == shared).schedule) == row


def test_a_shallow_program_is_planned_as_a_whole() -> None:
    _, _, shallow = compiled(2)
    assert shallow.layers == ()


def test_rows_that_nothing_multiplies_are_no_layers() -> None:
    """Storing each would be slower than a kernel that keeps the row."""

    def softmaxes(x: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.softmax(x, -1)
        return x

    assert Compiled(lambda: capture(softmaxes, (torch.randn(4, 8),)), Options()).layers == ()


def test_layers_cost_no_more_than_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, deep = compiled(4)
    seconds = deep.plan.seconds
    monkeypatch.setattr(layers, "FEWEST", 100)
    _, _, whole = compiled(4)
    assert len(whole.plan.met) > len(deep.plan.met) == 1
    assert seconds <= whole.plan.seconds * 1.05  # a local search either way, of kernels that take little more than their launch


def test_other_options_share_the_saturation_of_layers() -> None:
    _, _, deep = compiled(4)
    other = deep.on("A100")
    assert [kind.egraph for kind, _ in other.layers] == [kind.egraph for kind, _ in deep.layers]
    assert {str(p.plan.target) for p in (deep, other)} == {str(deep.target), str(other.target)}
    known = {loop_ir.identity(k): 1e-3 for k in deep.loop_ir.kernels}
    assert deep.timed(known).plan.seconds == pytest.approx(1e-3 * len(deep.loop_ir.kernels), rel=0.5)


def test_many_outputs_merge_without_trying_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    kernel_of = Search.kernel_of

    def counted(self: Search, outputs: Sequence[Output]) -> Planned:
        made.append(len(outputs))
        return kernel_of(self, outputs)

    monkeypatch.setattr(Search, "kernel_of", counted)
    x = torch.randn(64)
    many = Compiled(lambda: capture(lambda x: tuple(torch.sin(x + float(i)) for i in range(64)), (x,)), Options("H200"))
    assert len(many.loop_ir.kernels) == 1
    assert len(made) == 64 + 1  # each alone, and all at once


def test_a_search_out_of_time_returns_the_plan_that_it_has() -> None:
    _, _, deep = compiled(4)
    hurried = search(deep.egraph, deep.target, seconds=0.0)
    loop_ir.verify(to_loops(hurried))
    assert hurried.seconds >= deep.plan.seconds
