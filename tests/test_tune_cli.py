"""``emmy-eq tune`` and ``emmy-eq store``, on a device that needs no GPU."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from emmy_eq import cli, execute
from emmy_eq.codegen import tune as tuning
from tests.fake_devices import LOG, PLANTED

CODE = "torch.softmax(torch.randn(64, 300), -1)"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a store; tuning goes to the fake device, whose third row fails."""
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    monkeypatch.setenv(PLANTED, ",,raise,")
    monkeypatch.setattr(execute, "require_cuda", lambda command: None)
    monkeypatch.setattr(tuning, "tune", partial(tuning.tune, factory="tests.fake_devices:Fake"))
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


def test_the_next_best_plans_are_measured_too(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "torch.softmax(torch.relu(torch.randn(64, 128) @ torch.randn(128, 256)) @ torch.randn(256, 64), -1)"
    assert cli.main(["tune", "-c", code, "--target", "H200", "--rows", "4", "--plans", "3", "--store", str(store), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    best = {k["identity"]: k["best"]["microseconds"] for k in found["kernels"]}
    assert len(found["plans"]) == 3
    assert len({tuple(p["stored"]) for p in found["plans"]}) == 3
    assert all(p["measured_us"] >= min(best.values()) * p["kernels"] for p in found["plans"])
    assert cli.main(["tune", "-c", code, "--target", "H200", "--rows", "4", "--plans", "3", "--store", str(store)]) == 0
    assert "stored between kernels" in capsys.readouterr().out


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
    "no file": (["store", "import", "/nowhere/lines", "--store", "STORE"], "/nowhere/lines"),
    "no lines": (["store", "import", __file__, "--store", "STORE"], "line 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_paragraph_and_exit_code_2(case: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = BAD[case]
    assert cli.main([str(store) if w == "STORE" else w for w in words]) == 2
    assert message in capsys.readouterr().err
