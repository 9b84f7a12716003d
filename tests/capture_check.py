"""Runs a captured program by torch eager and, lowered, by the Tensor IR interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from emmy_eq import tensor_ir, torch_ir
from emmy_eq.arrays import to_numpy, to_torch
from emmy_eq.lower import lower

# A row rounds a 16-bit result once where eager may round each step, and sums in another order: a few units in the last place.
TOLERANCE: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float32: (2e-5, 2e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float64: (1e-10, 1e-10),
}


def interpret(program: torch_ir.Program) -> list[torch.Tensor]:
    """All outputs of the lowered program on the example inputs; the text form is checked on the way."""
    lowered = lower(program)
    tensor_ir.verify(lowered)
    assert tensor_ir.parse(tensor_ir.show(lowered)) == lowered
    found = tensor_ir.run(lowered, {name: to_numpy(x) for name, x in program.examples().items()})
    dtypes = [lowered.nodes[o.node].dtype for o in lowered.outputs]
    return [to_torch(x, dtype) for x, dtype in zip(found, dtypes, strict=True)]


def returned(program: torch_ir.Program) -> Any:
    """What the source function returns, by the interpreter."""
    pairs = zip(interpret(program), program.outputs, strict=True)
    return program.pack([x for x, o in pairs if o.returned])


def assert_matches_eager(program: torch_ir.Program) -> None:
    """Every output agrees with eager in dtype, shape, NaN positions and value."""
    want = torch_ir.run(program)
    for w, g in zip(want, interpret(program), strict=True):
        rtol, atol = TOLERANCE.get(w.dtype, (0.0, 0.0))
        torch.testing.assert_close(g, w.contiguous(), rtol=rtol, atol=atol, equal_nan=True)
