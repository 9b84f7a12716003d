"""Captures a piece of code: an expression, or statements ending in one.

The tensors that its own text makes by torch factory calls are the program's inputs, named after the variable that each
is assigned to; parameters and buffers of its modules are constants.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from emmy_eq.capture.function import finish, guarded
from emmy_eq.capture.tracer import CODE, Tracer, constructing, recording
from emmy_eq.errors import InvalidInput, InvalidSource
from emmy_eq.torch_ir import Program

_FACTORIES = ("arange empty eye full linspace logspace ones rand randint randn randperm tensor zeros normal as_tensor").split()


def capture_code(code: str) -> Program:
    """The program of ``code``, in which torch, nn, F, math and T (= torch.tensor) are defined.

    Example values are drawn from fixed seeds.  Raises `InvalidInput` where the code is no Python, ends in no expression,
    or fails, and `Unsupported` for what has no lowering.
    """
    tree = _parse(code)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        raise InvalidInput("code", "its last statement is not an expression, so it has no value")
    tracer = Tracer()
    inputs = _Inputs(tracer, _assigned_names(tree))
    space: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "T": torch.tensor, "math": math}
    body = compile(ast.Module(tree.body[:-1], []), CODE, "exec")
    value = compile(ast.Expression(last.value), CODE, "eval")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with recording(tracer), inputs:
            guarded(lambda: exec(body, space), "code")
            result = guarded(lambda: eval(value, space), "code")
    return finish(tracer, result, inputs.made, list)


def _parse(code: str) -> ast.Module:
    try:
        tree = ast.parse(code.strip(), CODE)
    except SyntaxError as error:
        raise InvalidSource("line {} of the code", error) from error
    if not tree.body:
        raise InvalidInput("code", "it is empty")
    return tree


def _assigned_names(tree: ast.Module) -> dict[tuple[int, int], str]:
    """Where a call stands whose value is assigned to a variable -> that variable."""
    names: dict[tuple[int, int], str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            both = (target, node.value)
            pairs = zip(target.elts, node.value.elts, strict=False) if _are_tuples(*both) else [both]  # type: ignore[attr-defined]
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    names[value.lineno, value.col_offset] = name.id
    return names


def _are_tuples(target: ast.expr, value: ast.expr) -> bool:
    return isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)


class _Inputs(TorchFunctionMode):
    """Makes an input of each tensor that a factory call in the code's own text returns."""

    def __init__(self, tracer: Tracer, names: Mapping[tuple[int, int], str]) -> None:
        super().__init__()
        self.tracer, self.names = tracer, names
        self.made: list[Tensor] = []
        self._factories = {getattr(torch, name) for name in _FACTORIES}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        caller = sys._getframe(1)
        found = func(*args, **kwargs)
        if func not in self._factories or caller.f_code.co_filename != CODE or constructing():
            return found
        return self._input(func, args, kwargs, found, self._variable(caller))

    def _variable(self, frame: Any) -> str:
        """The variable that the call in progress is assigned to, else x0, x1, ... in order."""
        line, _, column, _ = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        return self.names.get((line, column), f"x{len(self.made)}")

    def _input(self, func: Callable[..., Tensor], args: Sequence[Any], kwargs: Mapping[str, Any], found: Tensor, name: str) -> Tensor:
        seed = len(self.made) + 1

        def example() -> Tensor:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return func(*args, **kwargs)

        self.tracer.make_input(found, name, example)
        self.made.append(found)
        return found
