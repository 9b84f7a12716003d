"""Whether two functions compute the same, by value and, where rules are given, by rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from emmy_eq import tensor_ir, torch_ir
from emmy_eq.arrays import to_numpy
from emmy_eq.egraph import saturate
from emmy_eq.lower import lower
from emmy_eq.rule import Rule
from emmy_eq.testing.compare import Allowed, same_numbers
from emmy_eq.to_terms import to_terms

RELATIVE = 1e-9  # both sides are float64, with 16 digits; cancellation may cost some


def assert_equivalent(
    f: Callable[..., Any], g: Callable[..., Any], inputs: Sequence[torch.Tensor], rules: Sequence[Rule] | None = None
) -> None:
    """Raise AssertionError unless ``f(*inputs)`` and ``g(*inputs)`` are the same tensors, computed in float64.

    With ``rules`` the e-graph that holds both must also join them, by these rules alone: so the test says what a rule is for.
    """
    results = lower(torch_ir.capture(lambda *args: (_tensors(f(*args)), _tensors(g(*args))), tuple(inputs)))
    given = {n.name: to_numpy(x) for n, x in zip((n for n in results.nodes if isinstance(n, tensor_ir.Input)), inputs, strict=False)}
    found = tensor_ir.run(results, given, float64=True)
    half = len(found) // 2
    for n, (left, right) in enumerate(zip(found[:half], found[half:], strict=True)):
        assert left.shape == right.shape, f"result {n} has shape {left.shape} here and {right.shape} there"
        scale = max(1.0, float(abs(right[abs(right) < float("inf")]).max(initial=0.0)))
        why = same_numbers(left, right, Allowed(0.0, scale, RELATIVE))
        assert why is None, f"result {n}: {why}"
    if rules is None:
        return
    saturated = saturate(to_terms(results), rules)
    apart = [n for n in range(half) if saturated.roots[n] != saturated.roots[half + n]]
    assert not apart, f"no rule joins result {', '.join(map(str, apart))} of the two"


def _tensors(result: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
