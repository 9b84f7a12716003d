"""Every family of rows against eager, each argument away from its default at least once."""

from __future__ import annotations

from pathlib import Path

import pytest

from emmy_eq.lower import table
from emmy_eq.torch_ir import capture_code
from tests.capture_check import assert_matches_eager

SETUP = """
x = torch.randn(3, 4, 5)
y = torch.randn(4, 5)
n = torch.randint(-9, 9, (3, 4, 5))
m = torch.randint(1, 5, (4, 5))
"""

DATA = Path(__file__).parent / "data"
CASES = (DATA / "op_cases.txt").read_text().splitlines()  # a family a line, expressions separated by ";"


@pytest.mark.parametrize("line", CASES)
def test_matches_eager(line: str) -> None:
    for expression in line.split("; "):
        program = capture_code(f"{SETUP}\n{expression}")
        try:
            assert_matches_eager(program)
        except AssertionError as error:
            raise AssertionError(f"{expression}: {error}") from error


def test_core_operations_have_rows() -> None:
    """What the four blocks and the completions of the list need; tuple items and metadata asserts are no operations."""
    names = (DATA / "core_ops.txt").read_text().split("# next most wanted")[0].splitlines()
    wanted = {n for n in names if n.startswith("aten.")} - {"aten._assert_tensor_metadata.default"}
    assert wanted <= table().keys()
