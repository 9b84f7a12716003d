"""Plans of one program side by side: made in other processes, checked against float64, timed whole and kernel by kernel.

A record is one JSON object: a program, its plans (the seams pinned, kernels by identity, microseconds, error against float64) and the
kernels (schedule row, microseconds alone, Loop IR).  Lines of one program and target add up, so that later runs add plans to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any

import torch

import emmy_eq
from bench.compare import in_float64, relative_error
from bench.workloads import Workload
from emmy_eq import loop_ir
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.codegen.runtime import Executable, Launch, Program
from emmy_eq.errors import EmmyError
from emmy_eq.extract.front import front
from emmy_eq.extract.plan import Plan, search
from emmy_eq.extract.targets import target as target_named
from emmy_eq.ops import itemsize
from emmy_eq.options import parse_place
from emmy_eq.pipeline import Compiled
from emmy_eq.timing import together
from emmy_eq.torch_ir import capture, torch_dtype

Record = dict[str, Any]
LARGE = 4 << 30  # bytes of what a plan stores, from which it is not run
SLOW = 0.05  # modelled seconds from which a plan is not run
LONG = 4000  # lines of a kernel's CUDA from which NVRTC takes minutes
EAGER_FACTOR = 8.0  # a plan's error beside eager's, from which its time does not count


@dataclass(frozen=True, slots=True)
class Made:
    """A plan with machine code; ``rows``: the schedule row of each kernel, in launch order."""

    places: tuple[str, ...]
    stored: tuple[str, ...]
    loops: loop_ir.Program
    rows: tuple[str, ...]
    launches: tuple[Launch, ...]
    modelled: float
    failure: str = ""

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(loop_ir.identity(k) for k in self.loops.kernels)


def make(
    find: Callable[[str], Workload], name: str, target: str, places: Sequence[str], more: int, times: Mapping[str, float]
) -> list[Made]:
    """The plans of workload ``name`` at ``places`` and ``more`` of their front, each once; or the one chosen with measured ``times``."""
    workload = find(name)
    inputs = tuple(spec.blank() for spec in workload.inputs)
    first = emmy_eq.compile(workload.skeleton(), inputs, target=target)
    if times:
        programs = [("tuned", planned(first, search(first.egraph, first.target, times=times)))]
    else:
        programs = [(place, first.placed(parse_place(place))) for place in places]
        others = front(first.egraph, first.target, most=more) if more else []
        programs += [("front", planned(first, replace(first.plan, kernels=c.kernels))) for c in others]
    found: dict[tuple[str, ...], list[tuple[str, Compiled]]] = {}
    for place, program in programs:
        try:
            found.setdefault(tuple(loop_ir.identity(k) for k in program.loop_ir.kernels), []).append((place, program))
        except EmmyError:
            continue  # no plan has these pins
    return [_made(tuple(place for place, _ in same), same[0][1]) for same in found.values()]


def planned(compiled: Compiled, plan: Plan) -> Compiled:
    """The same program with another plan."""
    made = compiled.placed("auto")
    made.__dict__["plan"] = plan
    return made


def _made(places: tuple[str, ...], program: Compiled) -> Made:
    plan, loops = program.plan, program.loop_ir
    results = {r.name for r in plan.results}
    stored = tuple(sorted(o.buffer for k in plan.kernels for o in k.outputs if o.buffer not in results))
    if plan.seconds > SLOW:
        return Made(places, stored, loops, (), (), plan.seconds, f"not run: the model expects {plan.seconds * 1e3:.0f} ms")
    size = sum(prod(b.shape) * itemsize(b.dtype) for b in loops.temps)
    if size > LARGE:
        return Made(places, stored, loops, (), (), plan.seconds, f"not run: it stores {size >> 30} GiB")
    try:
        lines = max(text.count("\n") for text in program.cuda)
        if lines > LONG:
            return Made(places, stored, loops, (), (), plan.seconds, f"not run: a kernel of {lines} lines")
        cubins = {k.name: compile_cubin(text, program.target.arch) for k, text in zip(program.kernel_ir, program.cuda, strict=True)}
    except EmmyError as error:
        return Made(places, stored, loops, (), (), plan.seconds, str(error))
    code, rows = {k.name: k for k in program.kernel_ir}, {t.name: str(t.schedule) for t in program.tile_ir}
    launches = tuple(Launch(code[kernel.name], cubins[kernel.name], arguments) for kernel, arguments in program.calls)
    return Made(places, stored, loops, tuple(rows[kernel.name] for kernel, _ in program.calls), launches, plan.seconds)


def measured(workload: Workload, plans: Sequence[Made], target: str, known: Record | None = None) -> Record:
    """The record of ``workload`` with ``plans``, on the current CUDA device; what ``known`` holds is not measured again."""
    arch = target_named(target).arch
    function = workload.function("cuda")
    inputs = tuple(spec.draw("cuda", seed) for seed, spec in enumerate(workload.inputs))
    given = {name: x.cuda() for name, x in capture(function, inputs).bind(inputs).items()}
    reference = in_float64(function, inputs, workload.sample)
    limit = EAGER_FACTOR * relative_error(torch.as_tensor(function(*inputs)), reference, workload.sample)
    record: Record = {"program": workload.name, "target": target, "device": torch.cuda.get_device_name(), "plans": [], "kernels": {}}
    runs: dict[str, Callable[[], object]] = {}
    for n, plan in enumerate(plans):
        entry: Record = {"places": list(plan.places), "stored": list(plan.stored), "kernels": list(plan.kernels), "us": None}
        record["plans"].append(entry)
        if plan.failure:
            entry["failure"] = plan.failure
            continue
        loops = plan.loops
        outputs = tuple(loop_ir.Buffer(*o[:3]) for o in loops.outputs)
        run = Executable(Program(plan.launches, loops.inputs, loops.temps, outputs, arch))
        arguments = [given[b.name] for b in loops.inputs]
        entry["error"] = relative_error(run(*arguments)[0], reference, workload.sample)
        if not entry["error"] <= max(limit, 1e-6):
            entry["failure"] = f"wrong: its error is over {limit:.1e}"
            continue
        runs[f"plan {n}"] = lambda run=run, arguments=arguments: run(*arguments)  # type: ignore[misc]
        for kernel, launch, row in zip(loops.kernels, plan.launches, plan.rows, strict=True):
            identity = loop_ir.identity(kernel)
            if identity not in record["kernels"] and not (known and identity in known["kernels"]):
                record["kernels"][identity] = {"name": kernel.name, "schedule": row, "us": None, "loops": loop_ir.show(kernel)}
                runs[identity] = _alone(kernel, launch, given, arch)
    for name, us in together(runs).items():
        entry = record["plans"][int(name[5:])] if name.startswith("plan ") else record["kernels"][name]
        entry["us"] = round(us, 3)
    return record


def _alone(kernel: loop_ir.Kernel, launch: Launch, given: Mapping[str, torch.Tensor], arch: str) -> Callable[[], object]:
    """One kernel as a program of its own, on the program's inputs and normal values for what other kernels compute."""
    run = Executable(Program((launch,), kernel.inputs, (), kernel.outputs, arch))
    arguments = [_values(b, given.get(b.name)) for b in kernel.inputs]
    return lambda: run(*arguments)


def _values(b: loop_ir.Buffer, x: torch.Tensor | None) -> torch.Tensor:
    dtype = torch_dtype(b.dtype)
    if x is not None and x.numel() == torch.Size(b.shape).numel() and x.dtype == dtype:
        return x.reshape(b.shape)
    if dtype.is_floating_point:
        return torch.randn(b.shape, dtype=dtype, device="cuda")
    return torch.zeros(b.shape, dtype=dtype, device="cuda")


@dataclass(frozen=True, slots=True)
class Task:
    """A workload, the places of its plans, how many of the front's, and measured times to plan with."""

    name: str
    places: tuple[str, ...]
    more: int = 0
    times: Mapping[str, float] | None = None


def measure(find: Callable[[str], Workload], tasks: Sequence[Task], target: str, known: Mapping[str, Record]) -> Iterator[Record]:
    """Records in the order of ``tasks``; code is made by a process a core while the GPU measures.  ``find``: a module's function."""
    with ProcessPoolExecutor(max(1, (cpu_count() or 2) - 1), get_context("spawn")) as pool:
        made = [pool.submit(make, find, t.name, target, t.places, t.more, t.times or {}) for t in tasks]
        for task, future in zip(tasks, made, strict=True):
            before = known.get(task.name)
            seen = {tuple(p["kernels"]) for p in before["plans"]} if before is not None else set()
            try:
                plans = [p for p in future.result() if p.kernels not in seen]
                with torch.no_grad():
                    record = measured(find(task.name), plans, target, before) if plans else None
            except Exception as error:  # one point's fault costs that point alone
                print(f"  {task.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            finally:
                torch.cuda.empty_cache()
            if record is not None:
                yield record


def read(path: Path) -> dict[str, Record]:
    """Records by program, each with the plans and kernels of all its lines."""
    return merged(json.loads(line) for line in path.read_text().splitlines())


def merged(records: Iterable[Record]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for r in records:
        if r["program"] not in found:
            found[r["program"]] = r
            continue
        old = found[r["program"]]
        found[r["program"]] = old | {"plans": [*old["plans"], *r["plans"]], "kernels": r["kernels"] | old["kernels"]}
    return found
