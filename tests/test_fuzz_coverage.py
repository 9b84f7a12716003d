"""What the fuzzer's steps reach: every scalar operation, monoid, twist and scan, every dtype, and the lowering of torch's operations."""

from __future__ import annotations

from functools import cache
from random import Random

from emmy_eq import ops, tensor_ir, torch_ir
from emmy_eq.errors import Unsupported
from emmy_eq.lower import lower
from emmy_eq.lower.table import table
from emmy_eq.testing.draft import Draft, Sort
from emmy_eq.testing.shaped import shaped
from emmy_eq.testing.steps import rows
from emmy_eq.testing.strategies import MIXES, SORTS

TRIES = 2  # draws of a step: what torch refuses, or is too large, gives no program
SORT = {"float": "f32", "any": "f32", "int": "i64", "bool": "bool"}


@cache
def reached() -> tuple[frozenset[str], tuple[tensor_ir.Program, ...]]:
    """torch's operations, and the Tensor IR, of a program for each step of the fuzzer."""
    rng, overloads, programs = Random(0), set[str](), list[tensor_ir.Program]()
    steps = [(row.kind, row.rank, row) for row in rows()] + [("float", step[1], step) for step in shaped().values()]
    for kind, rank, step in steps:
        for _ in range(TRIES):
            draft = Draft(rng.randint, False, Sort((SORT[kind],), (2, 3, 4)))
            draft.input(draft.shape(max(rank, 1)), SORT[kind], "whole")
            if isinstance(step, tuple):
                draft.shaped(*step)
            else:
                draft.row(step)
            if not draft.body:
                continue
            source = draft.source([draft.pool[-1].name])
            captured = torch_ir.capture(source.function(), source.tensors())
            overloads.update(node.op for node in captured.nodes)
            try:
                programs.append(lower(captured))
            except Unsupported:
                continue
    return frozenset(overloads), tuple(programs)


def test_every_operation_of_tensor_ir_is_reached() -> None:
    nodes = [node for program in reached()[1] for node in program.nodes]
    scalar = {node.op for node in nodes if isinstance(node, tensor_ir.Elementwise)}
    made = {"fma", "round_f16", "round_bf16"}  # by kernels alone
    assert {name for name in ops.ops() if ops.exact(name) == name} - made - scalar == set()
    folds = {node.op for node in nodes if isinstance(node, tensor_ir.Reduce)}
    assert {name for name, row in ops.monoids().items() if not row.serial} | ops.bests().keys() <= folds


def test_every_dtype_is_an_input() -> None:
    assert {dtype for mix in MIXES for dtype in mix} == ops.DTYPES.keys()
    assert any(0 in sort.extents for sort in SORTS)


def test_most_of_torchs_operations_are_reached() -> None:
    """Overloads that share a lowering are one operation; the rest is in tests/data/op_cases.txt, an operation at a time."""
    rows_ = table()
    functions = {rows_[name] for name in reached()[0] if name in rows_}
    assert sum(function in functions for function in rows_.values()) > 0.75 * len(rows_)
