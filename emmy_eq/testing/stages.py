"""A program through every stage, each compared with the one above it.

    eager PyTorch -> Tensor IR -> terms -> e-graph (audit, random extractions) -> plans' Loop IR -> kernels on the simulator -> NVRTC

A finite program is checked in float64 down to Loop IR, where only the order of sums differs, and in its own dtypes against eager and
on the simulator.  Under the strict contract it is bit for bit from Tensor IR on.  With special values under another contract, where rules
may trade a NaN for an infinity, only the last step is checked: kernels are finite where their Loop IR is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from emmy_eq import evaluate, loop_ir, tensor_ir, torch_ir
from emmy_eq import terms as tm
from emmy_eq.arrays import to_numpy
from emmy_eq.egraph import Saturated, saturate
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.extract.loops import to_loops
from emmy_eq.extract.pinned import Place
from emmy_eq.extract.plan import search
from emmy_eq.extract.targets import Target, target
from emmy_eq.lower import lower
from emmy_eq.ops import FLOATS
from emmy_eq.rule import Rule
from emmy_eq.rules import active, admitted
from emmy_eq.strict import in_order
from emmy_eq.testing import kernels
from emmy_eq.testing.compare import Allowed, allowed, same_bits, same_ends, same_numbers
from emmy_eq.to_terms import to_terms
from emmy_eq.verify.audit import audit
from emmy_eq.verify.extractions import random_terms

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]
TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_120")


class Mismatch(AssertionError):
    """Two stages disagree, or a stage broke: ``stage`` says which, ``why`` how."""

    def __init__(self, stage: str, why: str) -> None:
        self.stage, self.why = stage, why
        super().__init__(f"{stage}: {why}")


@dataclass(slots=True)
class Checked:
    """How much of a program was checked; ``refused`` names what is not supported, where something is not."""

    rows: int = 0
    refused: list[str] = field(default_factory=list)


def check_program(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    *,
    special: bool = False,
    accuracy: str = "default",
    key: int = 0,
    rules: Sequence[Rule] = (),
    nvrtc: bool = False,
) -> Checked:
    """Raise `Mismatch` where a stage of ``function`` on ``inputs`` is wrong, and what a stage raises that breaks.

    ``special``: the inputs hold infinities or NaN.  ``key`` draws extractions, target, pinned seams and
    schedule rows.  ``rules`` that ``accuracy`` admits take part beside the library's.  ``nvrtc`` compiles the CUDA of every kernel as well.
    """
    done, rng = Checked(), Random(key)
    try:
        captured = torch_ir.capture(function, tuple(inputs))
        program = lower(captured)
    except Unsupported as error:
        done.refused.append(str(error))
        return done
    program = in_order(program) if accuracy == "strict" else program
    _Stages(program, special, accuracy == "strict", rng, (*active(accuracy), *admitted(rules, accuracy)), done).run(captured, nvrtc)
    return done


class _Stages:
    def __init__(self, program: tensor_ir.Program, special: bool, bits: bool, rng: Random, rules: Sequence[Rule], done: Checked) -> None:
        self.program, self.special, self.bits, self.rng, self.rules, self.done = program, special, bits, rng, rules, done
        self.planned: set[str] = set()
        self.inputs: dict[str, Array] = {}
        self.own: Arrays = ()
        self.wide: Arrays = ()

    def run(self, captured: torch_ir.Program, nvrtc: bool) -> None:
        self.inputs = {name: to_numpy(x) for name, x in captured.examples().items()}
        terms = to_terms(self.program)
        if not self.ends_alone:
            self.tensor_ir(captured)
            self.terms(terms)
        saturated = saturate(terms, self.rules)
        if not self.ends_alone:
            self.extractions(terms, saturated)
        on = target(self.rng.choice(TARGETS))
        named = {seam.cls: seam.name for seam in saturated.seams}
        pinned = {name: self.rng.choice(("fuse", "cut")) for name in named.values() if self.rng.random() < 0.3}
        for place in ("auto", "fuse", "cut", pinned):
            self.plan(saturated, on, place, nvrtc)

    @property
    def ends_alone(self) -> bool:
        return self.special and not self.bits

    def tensor_ir(self, captured: torch_ir.Program) -> None:
        """Against eager, in the program's own dtypes; its text reads back."""
        tensor_ir.verify(self.program)
        if tensor_ir.parse(tensor_ir.show(self.program)) != self.program:
            raise Mismatch("Tensor IR", "its text reads back as another program")
        self.own = tensor_ir.run(self.program, self.inputs)
        self.wide = self.own if self.special else tensor_ir.run(self.program, self.inputs, float64=True)
        self.allowed = [allowed(o, w, self.coarsest()) for o, w in zip(self.own, self.wide, strict=True)]
        with sdpa_kernel(SDPBackend.MATH):  # as documented, operation by operation: the fused kernel on CPU gives 0 for a row of NaN
            eager = [to_numpy(x) for x in torch_ir.run(captured, {name: x.clone() for name, x in captured.examples().items()})]
        for n, (got, want) in enumerate(zip(self.own, eager, strict=True)):
            if got.dtype != want.dtype or got.shape != want.shape:
                raise Mismatch("Tensor IR", f"result {n} is {got.dtype}{list(got.shape)}, eager's is {want.dtype}{list(want.shape)}")
            self.report("Tensor IR against eager", n, same_numbers(got, want, self.allowed[n]))
        if self.bits:
            self.wide = self.own

    def terms(self, terms: tm.TermProgram) -> None:
        tm.verify(terms)
        found = evaluate.run(terms, self.inputs, float64=not self.bits)
        self.same("terms", found)
        sides = evaluate.evaluate([v for pair in terms.equalities for v in pair], terms.axes, self.inputs, float64=not self.bits)
        for left, right in zip(sides[::2], sides[1::2], strict=True):
            if not np.array_equal(left.array, right.over(left.extents()), equal_nan=left.array.dtype.kind not in "biu"):
                raise Mismatch("terms", "the sides of an equality that holds by construction differ")

    def extractions(self, terms: tm.TermProgram, saturated: Saturated) -> None:
        """The audit, and L5: any term of a class gives its value."""
        culprit = audit(saturated, samples=3, key=self.rng.getrandbits(20))
        if culprit is not None:
            raise Mismatch("audit", str(culprit))
        for _ in range(3):
            chosen = zip(terms.results, random_terms(saturated, self.rng), strict=True)
            other = replace(terms, results=tuple(replace(r, val=v) for r, v in chosen))
            self.same("an extraction", evaluate.run(other, self.inputs, float64=not self.bits))

    def plan(self, saturated: Saturated, on: Target, place: Place, nvrtc: bool) -> None:
        try:
            plan = search(saturated, on, place, seconds=20.0)
        except (InvalidInput, Unsupported) as error:  # what is pinned may not be possible
            self.done.refused.append(str(error))
            return
        name, loops = place if isinstance(place, str) else "pinned", to_loops(plan)
        if loop_ir.show(loops) in self.planned:
            return
        self.planned.add(loop_ir.show(loops))
        loop_ir.verify(loops)
        if loop_ir.parse(loop_ir.show(loops)) != loops:
            raise Mismatch("Loop IR", "its text reads back as another program")
        above = loop_ir.run(loops, self.inputs, float64=not self.bits and not self.special)
        if not self.ends_alone:
            self.same(f"Loop IR at place {name}", above)
        try:
            for run in kernels.runs(loops, self.inputs, on, self.rng, nvrtc):
                self.done.rows += 1
                stage = f"simulator at place {name} on {on.arch}: {run}"
                if self.ends_alone:
                    for n, (got, want) in enumerate(zip(run.results, above, strict=True)):
                        self.report(stage, n, same_ends(got, want))
                else:
                    self.same(stage, run.results, self.allowed)
        except Unsupported as error:
            self.done.refused.append(str(error))

    def same(self, stage: str, found: Arrays, within: Sequence[Allowed] = ()) -> None:
        """Strict: the same bits.  Else the same numbers ``within`` bounds, or float64's rounding as much as this program magnifies that."""
        within = within or [a.in_float64() for a in self.allowed]
        for n, (got, want, bound) in enumerate(zip(found, self.wide, within, strict=True)):
            self.report(stage, n, same_bits(got, want) if self.bits else same_numbers(got, want, bound))

    def report(self, stage: str, n: int, why: str | None) -> None:
        if why is not None:
            raise Mismatch(stage, f"result {n}: {why}")

    def coarsest(self) -> float:
        """The largest unit roundoff of a float dtype in the program."""
        found = {torch_ir.torch_dtype(node.dtype) for node in self.program.nodes if node.dtype in FLOATS}
        return max((torch.finfo(d).eps for d in found), default=0.0)
