"""The tutorial's programs: whole ones are captured and verified, reduced ones are compared with eager."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from emmy_eq import tensor_ir
from emmy_eq.lower import lower
from emmy_eq.torch_ir import capture_code
from tests.capture_check import assert_matches_eager

CASES = {case["name"]: case["code"] for case in json.loads((Path(__file__).parent / "data/tutorial.json").read_text())}


def reduced(code: str) -> str:
    """``code`` with each extent above 64 replaced by a small one, the same everywhere."""
    return re.sub(r"\b\d{3,}\b", lambda number: str(8 + int(number[0]) % 29), code)


@pytest.mark.parametrize("name", CASES)
def test_full_extents_lower(name: str) -> None:
    tensor_ir.verify(lower(capture_code(CASES[name])))


@pytest.mark.parametrize("name", CASES)
def test_reduced_extents_match_eager(name: str) -> None:
    assert_matches_eager(capture_code(reduced(CASES[name])))


def test_linear_is_dense_up_to_the_weights_index_map() -> None:
    linear, dense = (lower(capture_code(CASES[name])) for name in ("linear", "dense"))
    differing = [(a, b) for a, b in zip(linear.nodes, dense.nodes, strict=True) if a != b and not isinstance(a, tensor_ir.Input)]
    assert len(differing) == 1
    assert all(isinstance(node, tensor_ir.IndexMap) for node in differing[0])
