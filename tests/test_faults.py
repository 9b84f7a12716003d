"""Kinds of wrong result that users reported against fused-kernel compilers: each right here, or refused by name."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import emmy_eq

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/reported_faults.json").read_text())
SLOW = {"B54"}  # a sum of 600 inputs takes half a minute to saturate


def run(row: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """What the compiled program gives, what is wanted, and the inputs as the program left them."""
    torch.manual_seed(0)
    space: dict[str, Any] = {"torch": torch, "T": torch.tensor, "math": math, "F": torch.nn.functional, "nn": torch.nn}
    inputs = {name: eval(text, space) for name, text in row["inputs"].items()}
    function = eval(f"lambda {', '.join(inputs)}: {row['expr']}", space)
    fresh = copy.deepcopy(inputs)
    got = emmy_eq.compile(function, tuple(inputs.values()))(*inputs.values())
    return got, eval(row["want"], space | fresh), inputs


@pytest.mark.parametrize("row", [row for row in ROWS if row["id"] not in SLOW], ids=lambda row: row["id"])
def test_right_or_refused(row: dict[str, Any]) -> None:
    got, want, inputs = run(row)
    tensors = got if isinstance(got, tuple | list) else (got,)
    given = [x for x in inputs.values() if isinstance(x, torch.Tensor)]
    if row["check"] == "mutates":
        assert any(torch.equal(x, want) for x in given)
        return
    # Default tolerances are the row's own check, but for a variance that eager itself has no better, as the row notes.
    rtol, atol = (1e-3, 0.0) if row["id"] == "B36" else (None, None)
    torch.testing.assert_close(got, want, equal_nan=True, rtol=rtol, atol=atol)
    memory = [t.untyped_storage().data_ptr() for t in tensors]
    if row["check"] == "noalias":
        assert not set(memory) & {x.untyped_storage().data_ptr() for x in given}
    if row["check"] == "distinct":
        assert len(set(memory)) == len(memory)
