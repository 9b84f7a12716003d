"""A tensor program as Python source: inputs by recipe, one expression a value, and the names of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from emmy_eq.ops import DTYPES, FLOATS, INTS
from emmy_eq.torch_ir import torch_dtype

# Nothing near the largest float: whether a sum of such overflows is a matter of its order.
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e10, 1.0, -1.0)


def tensor(shape: Sequence[int], dtype: str = "f32", kind: str = "normal", seed: int = 0) -> torch.Tensor:
    """A tensor from a recipe, the same on every machine.

    ``kind``: ``normal``; ``whole`` (-4 to 4, exact in every dtype); ``special`` (normal with infinities, NaN, signed zeros,
    subnormals and huge values strewn in; integers ``whole`` with the ends of their range); ``below N`` (0 to N-1, for indices).
    Integers are ``whole`` where not said otherwise, bools are fair.
    """
    rng = np.random.default_rng(seed)
    shape = tuple(shape)
    if dtype == "bool":
        return torch.from_numpy(np.asarray(rng.random(shape) < 0.5))
    if kind.startswith("below"):
        return torch.from_numpy(np.asarray(rng.integers(0, int(kind.split()[1]), shape))).to(torch_dtype(dtype))
    if dtype not in FLOATS or kind == "whole":
        low = 0 if dtype == "u8" else -4
        whole = np.asarray(rng.integers(low, 5, shape))
        if kind == "special" and dtype in INTS:
            ends = np.iinfo(DTYPES[dtype])
            whole = np.where(rng.random(shape) < 0.2, rng.choice([ends.min, ends.max], shape), whole)
        return torch.from_numpy(np.asarray(whole)).to(torch_dtype(dtype))
    array = np.asarray(rng.standard_normal(shape))
    if kind == "special":
        array = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), array)
    return torch.from_numpy(np.asarray(array)).to(torch_dtype(dtype))


@dataclass(frozen=True, slots=True)
class Given:
    """An input: the arguments of `tensor`."""

    shape: tuple[int, ...]
    dtype: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"tensor({self.shape}, {self.dtype!r}, {self.kind!r}, {self.seed})"

    def tensor(self) -> torch.Tensor:
        return tensor(self.shape, self.dtype, self.kind, self.seed)


SCOPE: Mapping[str, Any] = {"torch": torch, "F": F, "tensor": tensor}


@dataclass(frozen=True, slots=True)
class Source:
    """``inputs`` are called x0, x1, ...; ``body`` is (name, expression) in order; ``results`` are expressions, names mostly."""

    inputs: tuple[Given, ...]
    body: tuple[tuple[str, str], ...]
    results: tuple[str, ...]

    def function(self) -> Callable[..., Any]:
        """The program as a Python function of its inputs; it returns a tuple."""
        scope: dict[str, Any] = dict(SCOPE)
        exec(self.definition(), scope)
        found: Callable[..., Any] = scope["program"]
        return found

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Fresh example inputs."""
        return tuple(x.tensor() for x in self.inputs)

    def evaluate(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Every value of the body by name, by eager PyTorch."""
        scope: dict[str, Any] = {**SCOPE, **inputs}
        for name, text in self.body:
            scope[name] = eval(text, scope)
        return scope

    def definition(self) -> str:
        names = ", ".join(f"x{n}" for n in range(len(self.inputs)))
        lines = [f"def program({names}):", *(f"    {name} = {text}" for name, text in self.body)]
        return "\n".join([*lines, f"    return ({', '.join(self.results)},)", ""])

    def __str__(self) -> str:
        """A module that defines ``program`` and ``example_inputs``: `emmy-eq compile FILE.py:program` takes it."""
        head = "import torch\nimport torch.nn.functional as F\nfrom emmy_eq.testing import tensor\n\n\n"
        inputs = "".join(f"    {x},\n" for x in self.inputs)
        return f"{head}{self.definition()}\n\nexample_inputs = (\n{inputs})\n"
