"""The pipeline, top to bottom: PyTorch -> Tensor IR -> terms -> e-graph -> plan -> Loop, Tile, Kernel IR -> CUDA.

This module and the command line are the only ones that see all of emmy_eq, rules, extract and codegen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.rule import Rule
from emmy_eq.stage import stage

if TYPE_CHECKING:
    import torch

    from emmy_eq import loop_ir as loops
    from emmy_eq import tensor_ir as tensors
    from emmy_eq import torch_ir as captured
    from emmy_eq.codegen.kernel_ir import Kernel
    from emmy_eq.codegen.tile_ir import Tile
    from emmy_eq.egraph import Report, Saturated
    from emmy_eq.extract.plan import Plan
    from emmy_eq.extract.targets import Target
    from emmy_eq.layers import Layer
    from emmy_eq.terms import TermProgram

ACCURACIES = ("strict", "default", "fast")
VIEWS = ("torch", "tensor", "egraph", "loop", "tile", "kernel", "cuda")


@dataclass(frozen=True, slots=True)
class Options:
    """What a compile may be told.

    ``place``: ``auto``, ``fuse``, ``cut``, or seam names mapped to ``fuse`` or ``cut``.  ``schedule``: a row for the one
    kernel, or kernel names mapped to rows.  ``rules``: beside the library's; those that ``accuracy`` does not admit are left out, and named
    on stderr.  ``search_seconds``: the best plan found by then is taken; a search that ends by itself depends on nothing else.
    """

    target: str = "sm_90a"
    accuracy: str = "default"
    place: Mapping[str, str] | str = "auto"
    schedule: Mapping[str, str] | str | None = None
    rules: Sequence[Rule] = ()
    search_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_accuracy(self.accuracy)


def check_accuracy(accuracy: str) -> None:
    """Raise `InvalidInput` unless ``accuracy`` names a contract."""
    if accuracy not in ACCURACIES:
        raise InvalidInput(f"accuracy {accuracy!r}", f"it is one of {', '.join(ACCURACIES)}")


class Compiled:
    """A compiled program: every stage as an attribute, computed when first asked for, and a callable.

    Called with CUDA tensors it launches its kernels; with CPU tensors the simulator runs them.
    """

    def __init__(self, source: Callable[[], captured.Program], options: Options, only: tuple[Rule, ...] | None = None) -> None:
        self._source, self.options, self._only = source, options, only
        self.seconds: dict[str, float] = {}
        self.watch: Callable[[str, bool], None] | None = None
        self._inner: list[float] = []
        self._copies: dict[tuple[str, torch.device], tuple[int, int, torch.Tensor]] = {}

    @stage
    def import_torch(self) -> ModuleType:
        """A stage of its own, since it takes most of the time of a small compile from the shell."""
        return import_module("torch")

    @stage
    def torch_ir(self) -> captured.Program:
        assert self.import_torch is not None
        program = self._source()
        if not program.outputs:
            raise InvalidInput("the program", "neither its result nor an input that it writes holds a tensor")
        return program

    @stage
    def tensor_ir(self) -> tensors.Program:
        from emmy_eq.lower import lower
        from emmy_eq.strict import in_order

        program = lower(self.torch_ir)
        return in_order(program) if self.options.accuracy == "strict" else program

    @stage
    def terms(self) -> TermProgram:
        from emmy_eq.to_terms import to_terms

        return to_terms(self.tensor_ir)

    @stage
    def egraph(self) -> Saturated:
        from emmy_eq.egraph import saturate
        from emmy_eq.rules import library

        for rule in self.left_out:
            _say_once(f"rule {rule.name} is left out: accuracy {self.options.accuracy} does not admit what {rule.rounding.name.lower()}")
        known = set(library().values())
        return saturate(self.terms, self.rules, certified=all(rule in known for rule in self.rules))

    @stage
    def layers(self) -> tuple[tuple[Compiled, Layer], ...]:
        """Of a deep program: its layers in order, where equal ones are one program; none of a shallow one."""
        from emmy_eq.extract.pinned import stated
        from emmy_eq.layers import split

        options = self.options
        found = split(self.tensor_ir, stated(options.place)) if options.place not in ("fuse", "cut") else None
        if found is None:
            return ()
        share = options.search_seconds / len(found.kinds)
        kinds = [self._layer(program, replace(options, place=pins, schedule=None, search_seconds=share)) for program, pins in found.kinds]
        return tuple((kinds[layer.kind], layer) for layer in found.chain)

    def _layer(self, program: tensors.Program, options: Options) -> Compiled:
        made = Compiled(self._source, options, self._only)
        made.__dict__ |= {"tensor_ir": program, "layers": (), "seconds": self.seconds, "_inner": self._inner, "watch": self.watch}
        return made

    @stage
    def plan(self) -> Plan:
        from emmy_eq.codegen.stored import stored_times

        return self._planned(stored_times(self.target))

    def _planned(self, times: Mapping[str, float]) -> Plan:
        from emmy_eq.extract.joined import joined
        from emmy_eq.extract.plan import search
        from emmy_eq.tensor_ir import Input
        from emmy_eq.terms import InputBuf

        options = self.options
        if not self.layers:
            return search(self.egraph, self.target, options.place, options.search_seconds, times)
        kinds = {id(kind): kind for kind, _ in self.layers}
        plans = {n: kind._planned(times) for n, kind in kinds.items()}
        inputs = [InputBuf(n.name, n.shape, n.dtype) for n in self.tensor_ir.nodes if isinstance(n, Input)]
        aliases = [o.alias for o in self.tensor_ir.outputs]
        return joined([(plans[id(kind)], layer.names) for kind, layer in self.layers], inputs, aliases)

    @stage
    def loop_ir(self) -> loops.Program:
        from emmy_eq.extract.loops import to_loops

        return to_loops(self.plan)

    @stage
    def tile_ir(self) -> tuple[Tile, ...]:
        from emmy_eq.codegen import tile_ir
        from emmy_eq.codegen.families import schedules
        from emmy_eq.codegen.stored import stored_row

        def tile(k: loops.Kernel) -> Tile:
            if k.name in stated:
                return self._stated(k, stated[k.name])
            return tile_ir.to_tile(k, stored_row(k, self.target) or schedules(k, self.target)[0])

        stated = self._rows()
        return tuple(map(tile, self.distinct))

    @stage
    def kernel_ir(self) -> tuple[Kernel, ...]:
        from emmy_eq.codegen.lower import lower

        return tuple(lower(tile, self.target) for tile in self.tile_ir)

    @stage
    def cuda(self) -> tuple[str, ...]:
        from emmy_eq.codegen.cuda import source

        return tuple(source(kernel, self.target) for kernel in self.kernel_ir)

    @property
    def saturation(self) -> Report:
        """How the e-graph came about; of a deep program those of its layers, equal ones once."""
        from emmy_eq.egraph import together

        kinds = {id(kind): kind for kind, _ in self.layers}
        return together([kind.egraph.report for kind in kinds.values()]) if kinds else self.egraph.report

    @property
    def target(self) -> Target:
        from emmy_eq.extract.targets import contracted, target

        return contracted(target(self.options.target), self.options.accuracy)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that take part: those of the library, of installed distributions and of the options that the accuracy admits."""
        from emmy_eq.extensions import installed
        from emmy_eq.rules import active, admitted

        accuracy = self.options.accuracy
        return (*active(accuracy), *admitted((*installed(), *self.options.rules), accuracy)) if self._only is None else self._only

    @property
    def left_out(self) -> tuple[Rule, ...]:
        """The rules of the options that the accuracy does not admit."""
        from emmy_eq.rules import admitted

        taken = admitted(self.options.rules, self.options.accuracy)
        return tuple(r for r in self.options.rules if r not in taken)

    def restricted(self, rules: Sequence[Rule]) -> Compiled:
        """The same program under these rules alone."""
        other = Compiled(self._source, self.options, tuple(rules))
        other.__dict__ |= {"tensor_ir": self.tensor_ir} | ({} if self.layers else {"terms": self.terms})
        other.watch = self.watch
        return other

    def on(self, target: str) -> Compiled:
        """The same program for another target, from the same saturation."""
        return self._again(replace(self.options, target=target, schedule=None))

    def placed(self, place: Mapping[str, str] | str) -> Compiled:
        """The same program with its cuts pinned otherwise, from the same saturation."""
        return self._again(replace(self.options, place=place, schedule=None))

    def timed(self, times: Mapping[str, float]) -> Compiled:
        """The same program, planned again with these measured seconds of kernels, by identity."""
        other = self._again(self.options)
        other.__dict__["plan"] = other._planned(times)
        return other

    def _again(self, options: Options) -> Compiled:
        """The same program under other options, from the same saturation; pins other than these make other layers."""
        other = Compiled(self._source, options, self._only)
        if not self.layers:
            assert self.egraph
        if options.place == self.options.place:
            kinds = {id(kind): kind for kind, _ in self.layers}
            again = {n: kind._again(replace(kind.options, target=options.target)) for n, kind in kinds.items()}
            other.__dict__["layers"] = tuple((again[id(kind)], layer) for kind, layer in self.layers)
        shared = ("torch_ir", "tensor_ir", "terms", "egraph")
        other.__dict__ |= {name: self.__dict__[name] for name in shared if name in self.__dict__}
        other.watch = self.watch
        return other

    @property
    def launched(self) -> tuple[loops.Kernel, ...]:
        """The kernels that write something; an output without elements needs none."""
        return tuple(k for k in self.loop_ir.kernels if any(0 not in b.shape for b in k.outputs))

    @cached_property
    def calls(self) -> tuple[tuple[loops.Kernel, Mapping[str, str]], ...]:
        """For each launched kernel the one whose code runs it, and the program's buffer for each of that one's: the first
        that differs in names only, unless the options state rows that differ too."""
        from emmy_eq import loop_ir

        rows = self._rows()
        first: dict[tuple[str, str | None], loops.Kernel] = {}
        alike = [first.setdefault((loop_ir.identity(k), rows.get(k.name)), k) for k in self.launched]
        return tuple((k, loop_ir.match(k, launched)) for k, launched in zip(alike, self.launched, strict=True))

    @property
    def flops(self) -> Mapping[str, Mapping[str, int]]:
        """Of each kernel, by the unit that its schedule row uses."""
        from emmy_eq.codegen.families.matrix import flops_by_unit

        rows = {tile.name: tile.schedule for tile in self.tile_ir}
        used = {launched.name: rows[kernel.name] for launched, (kernel, _) in zip(self.launched, self.calls, strict=True)}
        return {k.name: flops_by_unit(k.loops, k.cost.flops, used[k.name]) if k.name in used else k.cost.flops for k in self.plan.kernels}

    @property
    def distinct(self) -> tuple[loops.Kernel, ...]:
        """The kernels that code is made for, each once."""
        return tuple({k.name: k for k, _ in self.calls}.values())

    def _rows(self) -> dict[str, str]:
        """Schedule rows by kernel that the options state; raises `InvalidInput` for one that has no kernel."""
        given, names = self.options.schedule, [k.name for k in self.launched]
        if given is None:
            return {}
        if not names:
            raise InvalidInput("the schedule", "the program launches no kernel: none of its outputs has elements")
        if isinstance(given, str) and len(names) != 1:
            raise InvalidInput("the schedule", f"it does not say which of the kernels {', '.join(names)} it is for")
        rows = {names[0]: given} if isinstance(given, str) else dict(given)
        for name in rows:
            if name not in names:
                raise InvalidInput("the schedule", f"there is no kernel {name!r}; the kernels are {', '.join(names)}")
        return rows

    def _stated(self, kernel: loops.Kernel, row: str) -> Tile:
        """Raises `InvalidInput`, with some legal rows, for one that does not parse, fit the kernel or lower."""
        from emmy_eq.codegen import schedule, tile_ir
        from emmy_eq.codegen.families import schedules
        from emmy_eq.codegen.lower import lower

        try:
            tile = tile_ir.to_tile(kernel, schedule.parse(row))
            lower(tile, self.target)
        except (InvalidInput, Unsupported) as error:
            legal = " or ".join(f"'{r}'" for r in schedules(kernel, self.target)[:3])
            raise InvalidInput(f"the schedule '{row}' of {kernel.name}", f"{error.reason}; legal is for example {legal}") from error
        return tile

    def show(self, view: str) -> str:
        """The program in one of `VIEWS`; the same text on every run."""
        from emmy_eq import loop_ir, report, tensor_ir, torch_ir
        from emmy_eq.codegen import kernel_ir, tile_ir

        if view == "torch":
            return torch_ir.show(self.torch_ir)
        if view == "tensor":
            return tensor_ir.show(self.tensor_ir)
        if view == "egraph":
            return report.egraph(self)
        if view == "loop":
            return loop_ir.show(self.loop_ir).rstrip()
        if view == "tile":
            return "\n\n".join(map(tile_ir.show, self.tile_ir))
        if view == "kernel":
            return "\n\n".join(map(kernel_ir.show, self.kernel_ir))
        if view == "cuda":
            return "\n".join(self.cuda).rstrip("\n")
        raise InvalidInput(f"view {view!r}", f"it is one of {', '.join(VIEWS)}")

    def explain(self, verbose: int = 0) -> str:
        """What was found, in words and tables; 1: rules and seconds too, 2: the rewrites as diffs."""
        from emmy_eq import report

        return report.explain(self, verbose)

    def __call__(self, *args: Any) -> Any:
        """As the source function: same results, in-place writes included.  CUDA tensors run on the GPU, others on the simulator."""
        given = self.torch_ir.bind(args)
        if not any(x.is_cuda for x in given.values()):
            _say_once("no CUDA tensor among the arguments: running on the simulator")
        results = self.run(given)
        return self.torch_ir.pack([x for x, output in zip(results, self.torch_ir.outputs, strict=True) if output.returned])

    def run(self, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """All results in order, of inputs and constants by name; one that aliases an input is written there."""
        device = next((x.device for x in given.values() if x.is_cuda), None)
        made = self._simulate(given) if device is None else self._loaded(self._constants_on(device, given))
        aliases = [alias for _, _, _, alias in self.loop_ir.outputs]
        return [x if alias is None else given[alias].copy_(x) for x, alias in zip(made, aliases, strict=True)]

    def _simulate(self, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Every kernel on the simulator, in order; buffers by name."""
        from emmy_eq.arrays import to_numpy, to_torch
        from emmy_eq.codegen import simulate
        from emmy_eq.ops import DTYPES

        memory = {b.name: to_numpy(given[b.name]) for b in self.loop_ir.inputs}
        made = [(b.name, b.shape, b.dtype) for b in self.loop_ir.temps] + [o[:3] for o in self.loop_ir.outputs]
        memory |= {name: np.empty(shape, DTYPES[dtype]) for name, shape, dtype in made}
        made_of = {kernel.name: kernel for kernel in self.kernel_ir}
        for kernel, arguments in self.calls:
            simulate.run(made_of[kernel.name], {own: memory[name] for own, name in arguments.items()})
        return [to_torch(memory[name].reshape(shape), dtype) for name, shape, dtype, _ in self.loop_ir.outputs]

    def _constants_on(self, device: torch.device, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """``given`` with constants that the source made on the CPU (literals, index tables) copied to ``device`` once a version."""
        out = dict(given)
        for i in self.torch_ir.inputs:
            x = given[i.name]
            if i.constant and x.device != device:
                key = (i.name, device)
                if key not in self._copies or self._copies[key][:2] != (x.data_ptr(), x._version):
                    self._copies[key] = (x.data_ptr(), x._version, x.to(device))
                out[i.name] = self._copies[key][2]
        return out

    @stage
    def _loaded(self) -> Callable[[Mapping[str, torch.Tensor]], list[torch.Tensor]]:
        from emmy_eq.codegen.runtime import load

        calls = [(kernel.name, arguments) for kernel, arguments in self.calls]
        return load(self.loop_ir, self.kernel_ir, self.cuda, calls, self.target)


def compile(
    program: Callable[..., Any],
    example_inputs: Sequence[Any],
    target: str = "sm_90a",
    accuracy: str = "default",
    place: Mapping[str, str] | str = "auto",
    schedule: Mapping[str, str] | str | None = None,
    rules: Sequence[Rule] = (),
) -> Compiled:
    """Compile a function or module for the shapes and dtypes of ``example_inputs``; see `Options` for the rest.

    The plan is searched now, kernels are made when first asked for.  Raises `Unsupported` for an operation that has no
    lowering, `InvalidInput` for an option that has no meaning, or a rule that a random draw refutes.
    """
    from emmy_eq.extensions import checked
    from emmy_eq.torch_ir import capture

    made = Compiled(lambda: capture(program, example_inputs), Options(target, accuracy, place, schedule, checked(rules)))
    made.loop_ir  # noqa: B018 (computed here, so that what is unsupported is said here)
    if schedule is not None:
        made.tile_ir  # noqa: B018 (likewise a row that fits no kernel)
    return made


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        print(f"emmy_eq: {text}", file=sys.stderr)
