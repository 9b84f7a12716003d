"""Reading and writing egraph-serialize JSON, and the command `emmy-eq extract`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emmy_eq.cli import main
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.dag import check, read, write

DATA = Path(__file__).parent / "data" / "extraction"


def document() -> dict[str, Any]:
    return {
        "nodes": {
            "a": {"op": "+", "children": ["b", "b"], "eclass": "0", "cost": 2.0, "subsumed": False},
            "b": {"op": "x", "children": [], "eclass": "1", "cost": 1.0, "subsumed": False},
            "c": {"op": "y", "children": [], "eclass": "1", "cost": 0.5, "subsumed": True},
        },
        "root_eclasses": ["0"],
    }


def test_round_trip(tmp_path: Path) -> None:
    first = read(DATA / "eggcc-bril_gamma_pull_in.bril.json.gz")
    for name in ("plain.json", "packed.json.gz"):
        write(first, tmp_path / name)
        assert read(tmp_path / name) == first
    assert (tmp_path / "packed.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_a_subsumed_node_is_never_chosen(tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text(json.dumps(document()))
    serialized = read(file)
    assert serialized.graph.members == ((0,), (1,))
    assert check(serialized.graph, {0: 0, 1: 1}) == 3.0


def setting(node: str, key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda doc: doc["nodes"][node].__setitem__(key, value)


FAULTS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (setting("a", "children", ["nowhere"]), "child 'nowhere' of node 'a' is not a node"),
    (setting("a", "children", "b"), "children of node 'a' are not a list"),
    (setting("b", "cost", float("nan")), "cost of node 'b' is nan"),
    (setting("b", "cost", -1.0), "cost of node 'b' is -1.0"),
    (setting("b", "cost", "1"), "cost of node 'b' is '1'"),
    (setting("b", "eclass", None), "node 'b' has no eclass"),
    (lambda doc: doc["nodes"].__setitem__("d", 3), "node 'd' is not an object"),
    (lambda doc: doc["nodes"].clear(), "it has no nodes"),
    (lambda doc: doc["root_eclasses"].clear(), "it has no root_eclasses"),
    (lambda doc: doc["root_eclasses"].append("9"), "root class '9' has no nodes"),
    (lambda doc: doc.pop("nodes"), "an object with `nodes`"),
    (setting("b", "children", ["a"]), "root class '0': it has no finite extraction"),
    (setting("b", "cost", float("inf")), "root class '0': it has no finite extraction"),
]


@pytest.mark.parametrize(("damage", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_malformed_files(
    damage: Callable[[dict[str, Any]], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doc = document()
    damage(doc)
    file = tmp_path / "e.json"
    file.write_text(json.dumps(doc))
    assert main(["extract", str(file)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "cannot be read"),
        (gzip.compress(b"{}", mtime=0)[:-4], "cannot be read"),
        (b"[]", "an object"),
    ],
)
def test_what_is_no_egraph_at_all(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        read(file)


def test_no_such_file() -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read("/nowhere/at/all.json")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    file = DATA / "egg_math_simplify_factor.json.gz"
    assert main(["extract", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    graph = read(file)
    number = {name: n for n, name in enumerate(graph.classes)}
    place = {name: n for n, name in enumerate(graph.ids)}
    choice = {number[cls]: place[node] for cls, node in found["choices"].items()}
    assert check(graph.graph, choice) == found["dag_cost"] >= found["lower_bound"]
    assert found["seconds"] < 10
    assert main(["extract", str(file), "--time", "5"]) == 0
    assert "lower bound" in capsys.readouterr().out
    assert main(["extract", str(file), "--time", "-1"]) == 2
