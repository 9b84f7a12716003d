"""``emmy-eq tune`` and ``emmy-eq store``, on a device that needs no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emmy_eq import cli, tuning
from tests.fake_devices import LOG, PLANTED

CODE = "torch.softmax(torch.randn(64, 300), -1)"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a store; tuning goes to the fake device, whose third row fails."""
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    monkeypatch.setenv(PLANTED, ",,raise,")
    monkeypatch.setattr(tuning, "require_cuda", lambda command: None)
    monkeypatch.setattr(tuning, "GPU", "tests.fake_devices:Fake")
    return tmp_path / "t.sqlite"


def test_tune_shows_the_gain_and_the_next_compile_takes_the_best_row(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tune", "-c", CODE, "--target", "H200", "--rows", "8", "--store", str(store), "--json"]) == 0
    out = capsys.readouterr()
    (kernel,) = json.loads(out.out)["kernels"]
    assert kernel["measured"] == 8
    assert kernel["gain"] == kernel["default"]["microseconds"] / kernel["best"]["microseconds"] > 1.0
    assert [mark.partition(":")[0] for mark in kernel["marks"].values()] == ["fault"]
    assert len([line for line in out.err.splitlines() if "(best" in line]) >= 6

    assert cli.main(["compile", "-c", CODE, "--target", "H200", "--ir", "tile"]) == 0
    untuned = capsys.readouterr().out
    monkeypatch.setenv("EMMY_EQ_STORE", str(store))
    assert cli.main(["compile", "-c", CODE, "--target", "H200", "--ir", "tile"]) == 0
    tuned = capsys.readouterr().out
    assert kernel["default"]["schedule"] in untuned
    assert kernel["best"]["schedule"] in tuned
    assert cli.main(["compile", "-c", CODE, "--target", "H200", "--ir", "tile", "--schedule", kernel["default"]["schedule"]]) == 0
    assert capsys.readouterr().out == untuned

    assert cli.main(["tune", "-c", CODE, "--target", "H200", "--rows", "8"]) == 0
    assert kernel["best"]["schedule"] in capsys.readouterr().out


def test_after_tuning_the_plan_is_the_faster_measured_one(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning, "GPU", "tests.fake_devices:Contrary")
    words = ["-c", "(torch.randn(16, 16) @ torch.randn(16, 16)) @ torch.randn(16, 16)", "--target", "RTX4090"]
    assert cli.main(["tune", *words, "--rows", "2", "--plans", "2", "--store", str(store), "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    # The model prefers one kernel, the measured times two.
    assert [(len(p["stored"]), p["kernels"], p["measured_us"], p["chosen"]) for p in plans] == [(0, 1, 40.0, False), (1, 2, 20.0, True)]
    assert plans[0]["model_us"] < plans[1]["model_us"]
    monkeypatch.setenv("EMMY_EQ_STORE", str(store))
    assert cli.main(["compile", *words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kernels"]) == 2
    assert cli.main(["tune", *words, "--rows", "2", "--plans", "2"]) == 0
    assert "is the plan that the next compile takes" in capsys.readouterr().out


@pytest.mark.parametrize(("device", "whole", "kernels"), [("Slowing", 21.0, 1), ("Hastening", 19.0, 2)])
def test_plans_near_the_best_are_measured_whole(
    device: str, whole: float, kernels: int, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One kernel of two folds takes as long as two of one each take alone."""
    monkeypatch.setattr(tuning, "GPU", f"tests.fake_devices:{device}")
    words = ["-c", "(torch.randn(16, 16) @ torch.randn(16, 16)) @ torch.randn(16, 16)", "--target", "RTX4090"]
    assert cli.main(["tune", *words, "--rows", "2", "--plans", "2", "--store", str(store), "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert {p["kernels"]: p["measured_us"] for p in plans} == pytest.approx({1: 20.0, 2: whole})
    assert [p["kernels"] for p in plans if p["chosen"]] == [kernels]
    monkeypatch.setenv("EMMY_EQ_STORE", str(store))
    assert cli.main(["compile", *words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kernels"]) == kernels


def test_show_export_and_import(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", "-c", CODE, "--target", "H200", "--rows", "4", "--store", str(store)]) == 0
    lines, other = tmp_path / "lines", tmp_path / "other.sqlite"
    assert cli.main(["store", "export", str(lines), "--store", str(store)]) == 0
    assert len(lines.read_text().splitlines()) == 4
    assert cli.main(["store", "import", str(lines), "--store", str(other)]) == 0
    assert "4 measurements added" in capsys.readouterr().err
    shown = []
    for path in (store, other):
        assert cli.main(["store", "show", "--store", str(path)]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "fake" in shown[0]
    assert cli.main(["store", "show", "--json", "--store", str(other)]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["rows"], record["marks"], record["target"]) == (4, 1, "H200")


BAD = {
    "no store": (["store", "show"], "EMMY_EQ_STORE"),
    "nothing to show": (["store", "show", "--store", "STORE"], "there is no such file"),
    "nothing to export": (["store", "export", "--store", "STORE"], "there is no such file"),
    "no file": (["store", "import", "/nowhere/lines", "--store", "STORE"], "/nowhere/lines"),
    "no lines": (["store", "import", __file__, "--store", "STORE"], "line 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_paragraph_and_exit_code_2(case: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = BAD[case]
    assert cli.main([str(store) if w == "STORE" else w for w in words]) == 2
    assert message in capsys.readouterr().err
    assert words[1] == "import" or not store.exists()
