"""The pipeline, top to bottom: PyTorch -> Tensor IR -> terms -> e-graph -> plan -> Loop, Tile, Kernel IR -> CUDA.

This module and the command line are the only ones that see all of emmy_eq, rules, extract and codegen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emmy_eq.errors import InvalidInput
from emmy_eq.rule import Rule
from emmy_eq.stage import stage

if TYPE_CHECKING:
    from emmy_eq import loop_ir, tensor_ir, terms, torch_ir
    from emmy_eq.codegen import kernel_ir, tile_ir
    from emmy_eq.egraph import Saturated
    from emmy_eq.extract.plan import Plan
    from emmy_eq.extract.targets import Target

ACCURACIES = ("strict", "default", "fast")


@dataclass(frozen=True, slots=True)
class Options:
    """What a compile may be told.

    ``place``: ``auto``, ``fuse``, ``cut``, or seam names mapped to ``fuse`` or ``cut``.  ``schedule``: a row for the one
    kernel, or kernel names mapped to rows.  ``rules``: added to those that ``accuracy`` admits.
    """

    target: str = "sm_90a"
    accuracy: str = "default"
    place: Mapping[str, str] | str = "auto"
    schedule: Mapping[str, str] | str | None = None
    rules: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        if self.accuracy not in ACCURACIES:
            raise InvalidInput(f"accuracy {self.accuracy!r}", f"it is one of {', '.join(ACCURACIES)}")


class Compiled:
    """A compiled program: every stage as an attribute, computed when first asked for, and a callable.

    Called with CUDA tensors it launches its kernels; with CPU tensors the simulator runs them.
    """

    def __init__(self, source: Callable[[], torch_ir.Program], options: Options) -> None:
        self._source, self.options = source, options
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    @stage
    def torch_ir(self) -> torch_ir.Program:
        return self._source()

    @stage
    def tensor_ir(self) -> tensor_ir.Program:
        from emmy_eq.lower import lower

        return lower(self.torch_ir)

    @stage
    def terms(self) -> terms.TermProgram:
        from emmy_eq.to_terms import to_terms

        return to_terms(self.tensor_ir)

    @stage
    def egraph(self) -> Saturated:
        from emmy_eq.egraph import saturate
        from emmy_eq.rules import active

        return saturate(self.terms, (*active(self.options.accuracy), *self.options.rules))

    @stage
    def plan(self) -> Plan:
        from emmy_eq.extract.plan import search

        return search(self.egraph, self.target, self.options.place)

    @stage
    def loop_ir(self) -> loop_ir.Program:
        from emmy_eq.extract.loops import to_loops

        return to_loops(self.plan)

    @stage
    def tile_ir(self) -> tuple[tile_ir.Tile, ...]:
        from emmy_eq.codegen import tile_ir

        return tuple(tile_ir.to_tile(kernel, self.schedule_of(kernel)) for kernel in self.loop_ir.kernels)

    @stage
    def kernel_ir(self) -> tuple[kernel_ir.Kernel, ...]:
        from emmy_eq.codegen.lower import lower

        return tuple(lower(tile, self.target) for tile in self.tile_ir)

    @stage
    def cuda(self) -> tuple[str, ...]:
        from emmy_eq.codegen.cuda import source

        return tuple(source(kernel, self.target) for kernel in self.kernel_ir)

    @property
    def target(self) -> Target:
        from emmy_eq.extract.targets import target

        return target(self.options.target)
