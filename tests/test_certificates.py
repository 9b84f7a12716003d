"""No rule is active without a current certificate; what the layers and the mutants say of rules that are wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import emmy_eq
from emmy_eq import cli, ops, rules
from emmy_eq.algebra import Axes, Val
from emmy_eq.codegen import tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.errors import InvalidInput
from emmy_eq.rule import Equation, Rounding, Rule, rewrite, rule
from emmy_eq.rules import certificates, certify
from emmy_eq.verify import laws, mutants, recorded, shrink
from emmy_eq.verify.check import check_on_draws, check_rule

from .test_rules import WRONG, add_zero, factor_out_unguarded, shift_out_of_max

LIBRARY = rules.library()


def test_every_active_rule_has_a_current_certificate() -> None:
    assert list(certificates.lacking(rules.active("fast"))) == [], "run `emmy-eq rules check`"


def test_at_least_95_percent_of_the_mutants_are_killed() -> None:
    killed, counted = certificates.score(list(certificates.load().values()))
    assert counted > 200
    assert killed >= 0.95 * counted


def test_a_key_is_of_what_the_rule_says() -> None:
    origin = LIBRARY["factor_out_of_sum"]
    said = recorded.key(origin)
    assert recorded.key(replace(origin, doc="Other words.", source="elsewhere.py:1")) == said
    assert recorded.key(replace(origin, rounding=Rounding.EXACT)) != said
    assert recorded.key(LIBRARY["regroup_sum"]) != said
    assert len({recorded.key(r) for r in LIBRARY.values()}) == len(LIBRARY)


def test_a_key_is_of_the_laws_of_its_twist(monkeypatch: pytest.MonkeyPatch) -> None:
    said = recorded.key(LIBRARY["twist_softmax"])
    row = replace(ops.twists()["softmax"], rescale=lambda m, n: (n - m).exp())
    monkeypatch.setattr(ops, "twists", lambda: {"softmax": row})
    assert recorded.key(LIBRARY["twist_softmax"]) != said


def test_a_stale_or_missing_certificate_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = LIBRARY["commute_add"]
    monkeypatch.setattr(certificates, "PATH", tmp_path / "certificates.json")
    assert list(certificates.lacking([origin])) == ["commute_add has no certificate"]
    certificates.store([certify.certify(origin).certificate])
    assert list(certificates.lacking([origin])) == []
    changed = replace(origin, rounding=Rounding.REASSOCIATES)
    assert list(certificates.lacking([changed])) == ["commute_add has changed since it was certified"]


@pytest.mark.parametrize("name", ["commute_add", "max_of_repeated", "merge_sum", "divide_after_sum", "where_not"])
def test_a_rule_is_certified_as_it_was(name: str) -> None:
    found = certify.certify(LIBRARY[name])
    assert found.holds
    assert found.survivors == ()
    assert found.certificate == certificates.load()[name]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda r: r.name)
def test_a_wrong_rule_is_shown_by_the_least_operands(wrong: Rule) -> None:
    found = shrink.smallest(wrong, check_rule(wrong, 50))
    assert found is not None
    assert sum(array.size for array in found.values.values()) <= 3
    assert all(name in str(found) for name, _ in wrong.args)
    assert "left" in found.why


@pytest.mark.parametrize(
    ("wrong", "guard"),
    [
        (factor_out_unguarded, "a is free of k"),
        (shift_out_of_max, "c is free of k"),
        (add_zero, "all values are never -0.0 (no guard says so)"),
    ],
    ids=["factor", "shift", "zero"],
)
def test_a_guard_that_saves_is_found(wrong: Rule, guard: str) -> None:
    assert shrink.saving_guard(wrong) == guard


@rule(Rounding.REASSOCIATES)
def greatest_of_shifted(a: Val, c: Val, k: Axes) -> Equation:
    """True, and no lattice knows it."""
    return rewrite((a + c).max(k), a.max(k) + c, when=c.free_of(k))


def test_where_order_meets_arithmetic_the_exact_layer_decides() -> None:
    verdict = check_rule(greatest_of_shifted)
    assert verdict.holds, verdict
    assert "abstains: the order meets arithmetic" in verdict.layers["L1 field"]
    assert verdict.layers["L2 order"] == "60 draws"


def test_a_twist_that_rescales_the_wrong_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(ops.twists()["softmax"], name="backwards", rescale=lambda m, n: (n - m).exp())
    monkeypatch.setattr(ops, "twists", lambda: {"backwards": row})
    (blocks, nothing) = laws.laws("backwards")
    assert not laws.verdict(blocks).holds
    assert laws.verdict(nothing).holds


@pytest.mark.parametrize("name", ops.carriers())
def test_a_split_that_is_wrong_in_one_place_is_refused(name: str) -> None:
    found = certify.certify_split(ops.carriers()[name])
    assert found.holds
    assert found.survivors == ()
    assert found.certificate.mutants["killed"] > 1
    assert found.certificate == certificates.load()[f"split_{name}"]


def test_what_has_no_certificate_of_its_split_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every monoid that is not a sum in order has one, every carrier has one, and without it a schedule row is refused."""
    assert list(certificates.splits_lacking()) == [], "run `emmy-eq rules check`"
    folds = (*ops.monoids(), *ops.carriers())
    assert [name for name in folds if not certificates.may_split(name)] == ["serial_sum", "serial_prod"]
    made = emmy_eq.compile(lambda x: torch.softmax(x, -1), (torch.randn(4, 64),))
    (kernel,) = made.loop_ir.kernels
    tile = tile_ir.to_tile(kernel, schedules(kernel, made.target)[0])
    tile_ir.verify(tile)
    assert any(split.threads > 1 for _, split in tile.schedule.reduce)
    monkeypatch.setattr(tile_ir, "may_split", lambda fold: fold != "softmax")
    with pytest.raises(InvalidInput, match="without a certificate of its split"):
        tile_ir.verify(tile)


def test_every_mutant_of_the_factor_rule_is_told_apart() -> None:
    fates = {mutant.what: fate for mutant, fate in mutants.fates(LIBRARY["factor_into_sum"])}
    assert fates["operands of mul swapped on the right"] == "equivalent"
    assert fates["without (is_empty (__and__ (free a) j))"] == "killed"
    assert fates["axes (__or__ k j) became k on the right"] == "killed"
    assert set(fates.values()) == {"equivalent", "killed"}


def test_a_rule_file_is_checked_and_its_fault_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = certificates.PATH.read_bytes()
    file = tmp_path / "mine.py"
    file.write_text(
        "from emmy_eq.algebra import Val\n"
        "from emmy_eq.rule import Equation, Rounding, rewrite, rule\n\n\n"
        "@rule(Rounding.REASSOCIATES)\n"
        "def own(x: Val) -> Equation:\n"
        '    """False at 0."""\n'
        "    return rewrite(x / x, x.like(1.0))\n"
    )
    assert cli.main(["rules", "check", "--rules", str(file)]) == 1
    shown = capsys.readouterr()
    assert "[1/1] own" in shown.err
    assert "own is refuted by L2 order" in shown.out
    assert "x[] = 0.0" in shown.out
    assert "left nan, right 1.0" in shown.out
    assert cli.main(["rules", "check", "--rules", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["own"]["passed"] is False
    assert certificates.PATH.read_bytes() == before


def test_a_rule_is_refuted_by_the_same_draw_each_time() -> None:
    first, second = (check_on_draws(factor_out_unguarded, 20) for _ in range(2))
    assert first == second
