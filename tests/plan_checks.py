"""Shared by the tests of extraction: programs as text, through every stage up to a plan."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from emmy_eq import evaluate, loop_ir, rules
from emmy_eq.arrays import to_numpy
from emmy_eq.egraph import Saturated, saturate
from emmy_eq.extract.loops import to_loops
from emmy_eq.extract.pinned import Place
from emmy_eq.extract.plan import Plan, search
from emmy_eq.extract.targets import target
from emmy_eq.lower import lower
from emmy_eq.terms import TermProgram
from emmy_eq.to_terms import to_terms
from emmy_eq.torch_ir import capture_code

Arrays = dict[str, np.ndarray[Any, Any]]
TUTORIAL = {row["name"]: row for row in json.loads((Path(__file__).parent / "data" / "tutorial.json").read_text())}


@cache
def program(code: str) -> tuple[TermProgram, Saturated]:
    """The terms of ``code``, and all their equal forms."""
    terms = to_terms(lower(capture_code(code)))
    return terms, saturate(terms, rules.active())


@cache
def inputs(code: str) -> Arrays:
    """The example inputs of ``code``, which may be large."""
    return {name: to_numpy(x) for name, x in capture_code(code).examples().items()}


def plan(code: str, place: Place = "auto", on: str = "H200") -> Plan:
    return search(program(code)[1], target(on), place)


def check_values(terms: TermProgram, planned: Plan, given: Arrays) -> loop_ir.Program:
    """The plan's Loop IR is well formed, reads back, and computes what the terms do."""
    loops = to_loops(planned)
    loop_ir.verify(loops)
    assert loop_ir.parse(loop_ir.show(loops)) == loops
    wanted = evaluate.run(terms, given, float64=True)
    for got, want in zip(loop_ir.run(loops, given, float64=True), wanted, strict=True):
        # Both sides are float64; algebra regroups sums of at most some thousand terms.
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-9, atol=1e-9)
    return loops
