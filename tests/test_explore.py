"""The explorer: the front, the words for a cut, the page, the sweep, several targets, and measured times in the search."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from emmy_eq import cli, loop_ir
from emmy_eq.errors import InvalidInput
from emmy_eq.explore import sizes, targets
from emmy_eq.extract.cost import Cost
from emmy_eq.extract.front import Trade, fewer, front
from emmy_eq.extract.measured import Model
from emmy_eq.extract.plan import search
from emmy_eq.extract.targets import target
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture_code

MLP = "h=nn.RMSNorm(512)(torch.randn(64,512)); nn.Sequential(nn.Linear(512,1024),nn.GELU(),nn.Linear(1024,512))(h)"
CHAIN = "n = 16\n(torch.randn(n, 64) @ torch.randn(64, 64)) @ torch.randn(64, n)"


def compiled(code: str) -> Compiled:
    return Compiled(lambda: capture_code(code), Options("H200"))


@pytest.fixture(scope="module")
def mlp() -> Compiled:
    return compiled(MLP)


def test_no_plan_of_the_front_beats_the_chosen_one(mlp: Compiled) -> None:
    plans = front(mlp.egraph, mlp.target)
    (chosen,) = [p for p in plans if p.chosen]
    assert chosen is plans[0]
    assert chosen.seconds == pytest.approx(mlp.plan.seconds)  # summed in another order
    assert () in [p.stored for p in plans]
    assert max(p.launches for p in plans) > chosen.launches


def test_a_trade_is_the_difference_of_two_plans(mlp: Compiled) -> None:
    (chosen,) = [p for p in front(mlp.egraph, mlp.target) if p.chosen]
    trade = next(t for t in chosen.trades if t.cut == "gelu")
    (without,) = {(m.seconds, m.flops) for m in mlp.plan.met if {*m.stored} == {*chosen.stored} - {"gelu"}}
    assert trade.size == 64 * 1024 * 4
    assert trade.launches == 1
    assert trade.flops == (without[1], chosen.flops)
    assert trade.seconds == pytest.approx(chosen.seconds - without[0])  # summed in another order


def test_a_trade_in_words() -> None:
    assert str(Trade("h", 4096, 4096, (16, 1), 1, -2.5e-6)) == "store h: +4 KiB, 15/16 fewer flops, +1 launch, -2.50 us"
    assert str(Trade("h", 4096, -2048, (100, 100), 2, 0.0)) == "store h: -2 KiB, +2 launches, +0.00 us"
    assert fewer(10_000, 7_411) == "25.9 % fewer flops"
    assert fewer(10, 30) == "3x the flops"


class Balanced(HTMLParser):
    """Checks that every element is closed, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name in ("src", "href") for name, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, png = tmp_path / "a.html", tmp_path / "a.png"
    words = ["explore", "-c", CHAIN, "--html", str(html), "--sweep", "n=8,16"]
    pytest.importorskip("matplotlib")
    assert cli.main([*words, "--plot", str(png)]) == 0
    assert "fuse us" in capsys.readouterr().out
    assert png.read_bytes().startswith(b"\x89PNG")
    page = Balanced()
    page.feed(html.read_text())
    assert page.open == []
    text = "".join(page.text)
    assert all(part in text for part in ("(torch.randn(n, 64)", "k0_", "matmul", "__global__", "Seams"))


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explore", "-c", CHAIN, "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert [p["chosen"] for p in plans].count(True) == 1
    assert next(p for p in plans if p["trades"])["trades"][0]["words"].startswith("store ")


def test_a_sweep_finds_where_cutting_begins_to_pay() -> None:
    code = "a=torch.randn(n,n)\nb=torch.randn(n,n)\nc=torch.randn(n,n)\n(a@b)@c"
    found = sizes.sweep(code, "n=1024,16", Options("H200"))
    assert [p.value for p in found.points] == [16, 1024]
    assert [x["faster"] for x in sizes.record(found)["points"]] == ["fuse", "cut"]
    (at,) = found.crossovers
    assert 16 < at < 1024
    assert "fuse is faster up to n = " in sizes.text(found)
    for p in found.points:
        assert p.auto.seconds <= min(p.fuse.seconds, p.cut.seconds) * (1 + 1e-9)


@pytest.mark.parametrize("stated", ["n", "n=", "n=1,x", "n=0", "m=1,2"])
def test_a_wrong_sweep_is_refused(stated: str) -> None:
    with pytest.raises(InvalidInput, match="--sweep"):
        sizes.sweep(CHAIN, stated, Options("H200"))


def test_what_rules_made_is_called_so_and_pinned_by_the_same_name(capsys: pytest.CaptureFixture[str]) -> None:
    code = "torch.randn(16, 64) @ torch.randn(64, 64) @ torch.randn(64, 16)"
    assert cli.main(["explore", "-c", code]) == 0
    said = capsys.readouterr().out
    assert "each cut against the same plan without it" in said
    assert said.endswith("made by rules, no tensor of the program: sum\n")
    assert cli.main(["compile", "-c", code, "--place", "sum=cut", "--ir", "loop"]) == 0
    assert "\ntemps sum: f32[64,16]\n" in capsys.readouterr().out


def test_targets_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", "-c", CHAIN, "--targets", "a100,h200,rtx5090", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [p["target"] for p in found["plans"]] == ["A100", "H200", "RTX5090"]
    assert len(found["differences"]) == 2
    assert cli.main(["compile", "-c", CHAIN, "--targets", "a100,nosuch"]) == 2
    assert "RTX5090" in capsys.readouterr().err


def test_measured_times_decide(mlp: Compiled) -> None:
    """The chosen plan's kernels turn out slow and the one kernel fast: it is taken, without a model's word."""
    (fused,) = mlp.placed("fuse").loop_ir.kernels
    times = {loop_ir.identity(k): 1e-3 for k in mlp.loop_ir.kernels} | {loop_ir.identity(fused): 2e-6}
    found = search(mlp.egraph, target("H200"), times=times)
    assert [loop_ir.identity(k.loops) for k in found.kernels] == [loop_ir.identity(fused)]
    assert found.seconds == 2e-6


def test_what_nobody_measured_is_as_far_off_as_what_was(mlp: Compiled) -> None:
    """All measured kernels are ten times slower than modelled: that alone must not drive the search to others."""
    times = {loop_ir.identity(k.loops): k.cost.seconds * 10 for k in mlp.plan.kernels}
    found = search(mlp.egraph, target("H200"), times=times)
    assert [loop_ir.identity(k.loops) for k in found.kernels] == [loop_ir.identity(k.loops) for k in mlp.plan.kernels]
    assert found.model.factor("arithmetic") == pytest.approx(10)  # a ratio of floats
    assert found.model.error(k.cost for k in found.kernels) == pytest.approx(0, abs=1e-9)


def test_a_model_without_measurements_changes_nothing() -> None:
    cost = Cost(1e-6, 10, 10, {}, "DRAM", 1e-6)
    assert Model().settled(cost, "x") == cost
    assert Model().error([cost]) is None


def test_where_plans_differ_and_why(mlp: Compiled) -> None:
    """As on two targets of which one fuses and the other cuts."""
    fused, cut = mlp.placed("fuse"), mlp.on("A100").placed("cut")
    found = targets.differences(fused.plan, cut.plan)
    assert all(d.ours and d.theirs for d in found)
    added = set().union(*(d.cuts[1] for d in found))
    assert added == set(targets.stored(cut.plan)) - set(targets.stored(fused.plan)) != set()
    said = targets.reasons([fused, cut])
    assert len(said) == len(found)
    assert all(line.startswith("A100 stores ") and "instead of" in line and "on H200 that would be" in line for line in said)
    assert targets.differences(cut.plan, cut.plan) == []
    assert targets.reasons([cut, cut]) == ["A100: the kernels are those of A100"]
    shown = targets.text([fused, cut])
    assert all(name in shown for name in added)
