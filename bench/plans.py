"""Plans of one program side by side: made in other processes, checked against float64, timed whole and kernel by kernel.

A record is one JSON object: a program, its plans (the seams pinned, kernels by identity, microseconds, error against float64) and the
kernels (schedule row, microseconds alone, Loop IR).  Lines of one program and target add up, the last time of a plan counts.  ``tuned``:
the kernels that a search with the program's measured times chose last.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from multiprocessing import get_context
from os import cpu_count
from typing import Any

import torch

import emmy_eq
from bench.compare import in_float64, relative_error
from bench.workloads import Workload
from emmy_eq import loop_ir
from emmy_eq.codegen.cuda import source
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import Kernel
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.codegen.runtime import Executable, Launch, Program
from emmy_eq.codegen.tile_ir import to_tile
from emmy_eq.errors import EmmyError, Unsupported
from emmy_eq.extract.front import front
from emmy_eq.extract.measured import together as whole
from emmy_eq.extract.plan import Plan
from emmy_eq.extract.targets import Target
from emmy_eq.extract.targets import target as target_named
from emmy_eq.ops import itemsize
from emmy_eq.options import parse_place
from emmy_eq.pipeline import Compiled
from emmy_eq.timing import together
from emmy_eq.torch_ir import capture, torch_dtype

Record = dict[str, Any]
Runs = dict[tuple[str, ...], Callable[[], object]]  # whole plans, by the identities of their kernels
LARGE = 4 << 30  # bytes of what a plan stores, from which it is not run
SLOWEST = 30  # times the best plan of a program by the model, from which a plan is not run
LONG = 4000  # lines of a kernel's CUDA from which NVRTC takes minutes
EAGER_FACTOR = 8.0  # a plan's error beside eager's, from which its time does not count
NEAR = 1.1  # times the fastest plan, up to which plans are measured once more, side by side


@dataclass(frozen=True, slots=True)
class Code:
    """Of ``loops``, under schedule row ``row``."""

    loops: loop_ir.Kernel
    row: str
    kernel: Kernel
    cubin: bytes


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


@dataclass(frozen=True, slots=True)
class Task:
    """A workload, the places of its plans, and how many of the front's; or measured ``times`` to plan with.  ``rounds``: so often it is
    planned again with what was measured, until nothing new comes up; ``last``: the fastest plans were measured side by side."""

    name: str
    places: tuple[str, ...] = ()
    more: int = 0
    rounds: int = 0
    times: Mapping[str, float] | None = None
    last: bool = False


def make(find: Callable[[str], Workload], target: str, task: Task) -> list[Made]:
    """The plans of ``task``, each once."""
    workload = find(task.name)
    inputs = tuple(spec.blank() for spec in workload.inputs)
    first = emmy_eq.compile(workload.skeleton(), inputs, target=target)
    if task.times is not None:
        programs = [("tuned", first.timed(task.times))]
    else:
        programs = [(place, first.placed(parse_place(place))) for place in task.places]
        others = front(first.egraph, first.target, most=task.more) if task.more else []
        programs += [("front", planned(first, replace(first.plan, kernels=c.kernels))) for c in others]
    found: dict[tuple[str, ...], list[tuple[str, Compiled]]] = {}
    for place, program in programs:
        try:
            found.setdefault(tuple(loop_ir.identity(k) for k in program.loop_ir.kernels), []).append((place, program))
        except EmmyError:
            continue  # no plan has these pins
    best = min((same[0][1].plan.seconds for same in found.values()), default=0.0)
    code: dict[str, Code] = {}
    return [_made(tuple(place for place, _ in same), same[0][1], SLOWEST * best, code) for same in found.values()]


def planned(compiled: Compiled, plan: Plan) -> Compiled:
    """The same program with another plan."""
    made = compiled.placed("auto")
    made.__dict__["plan"] = plan
    return made


def _made(places: tuple[str, ...], program: Compiled, limit: float, code: dict[str, Code]) -> Made:
    """``limit``: modelled seconds from which it is not run; ``code``: what was made for other plans, by kernel identity."""
    plan, loops = program.plan, program.loop_ir
    results = {r.name for r in plan.results}
    stored = tuple(sorted(o.buffer for k in plan.kernels for o in k.outputs if o.buffer not in results))
    refused = partial(Made, places, stored, loops, (), (), plan.seconds)
    if plan.seconds > limit:
        return refused(f"not run: the model expects {plan.seconds * 1e6:.0f} us, {SLOWEST} times the best")
    size = sum(prod(b.shape) * itemsize(b.dtype) for b in loops.temps)
    if size > LARGE:
        return refused(f"not run: it stores {size >> 30} GiB")
    try:
        of = [_code(k, program.target, code) for k in loops.kernels]
    except EmmyError as error:
        return refused(str(error))
    launches = tuple(Launch(c.kernel, c.cubin, loop_ir.match(c.loops, k)) for c, k in zip(of, loops.kernels, strict=True))
    return Made(places, stored, loops, tuple(c.row for c in of), launches, plan.seconds)


def _code(kernel: loop_ir.Kernel, target: Target, known: dict[str, Code]) -> Code:
    """Under the default row.  Raises `Unsupported` where NVRTC would take minutes."""
    identity = loop_ir.identity(kernel)
    if identity not in known:
        row = schedules(kernel, target)[0]
        lowered = lower(to_tile(kernel, row), target)
        text = source(lowered, target)
        if (lines := text.count("\n")) > LONG:
            raise Unsupported(kernel.name, f"not run: a kernel of {lines} lines")
        known[identity] = Code(kernel, str(row), lowered, compile_cubin(text, target.arch))
    return known[identity]


def measured(workload: Workload, plans: Sequence[Made], target: str, known: Record | None = None) -> tuple[Record, Runs]:
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
                if len(loops.kernels) > 1:
                    runs[identity] = _alone(kernel, launch, given, arch)
    for name, us in together(runs).items():
        entry = record["plans"][int(name[5:])] if name.startswith("plan ") else record["kernels"][name]
        entry["us"] = round(us, 3)
    for plan in record["plans"]:  # of one kernel: its time is the kernel's, which lies elsewhere in memory else and may differ by it
        if len(plan["kernels"]) == 1 and plan["kernels"][0] in record["kernels"]:
            record["kernels"][plan["kernels"][0]]["us"] = plan["us"]
    return record, {p.kernels: runs[f"plan {n}"] for n, p in enumerate(plans) if f"plan {n}" in runs}


def side_by_side(record: Record, runs: Runs) -> list[Record]:
    """The fastest plans of ``record``, if they are several, with new times: one may have been taken when the clock was lower."""
    timed = [p for p in record["plans"] if p["us"] is not None]
    near = [p for p in timed if p["us"] <= NEAR * min(q["us"] for q in timed)]
    found = together({str(n): runs[tuple(p["kernels"])] for n, p in enumerate(near)}) if len(near) > 1 else {}
    return [near[int(n)] | {"us": round(us, 3)} for n, us in found.items()]


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


def measure(find: Callable[[str], Workload], tasks: Sequence[Task], target: str) -> Iterator[Record]:
    """Records as they come; code is made by a process a core while the GPU measures.  ``find``: a module's function."""
    processes = max(1, (cpu_count() or 2) - 1)
    waiting, known, runs = deque(tasks), dict[str, Record](), defaultdict[str, Runs](dict)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running: dict[Future[list[Made]], Task] = {}
        while waiting or running:
            while waiting and len(running) < 2 * processes:
                task = waiting.popleft()
                running[pool.submit(make, find, target, task)] = task
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                try:
                    record = _record(find(task.name), task, future.result(), target, known.get(task.name), runs[task.name])
                except Exception as error:  # one point's fault costs that point alone
                    print(f"  {task.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    continue
                finally:
                    torch.cuda.empty_cache()
                known[task.name] = merged([*([known[task.name]] if task.name in known else ()), record])[task.name]
                last = not record["plans"]
                if last and not task.last:
                    record["plans"] = side_by_side(known[task.name], runs[task.name])
                    known[task.name] = merged([known[task.name], record])[task.name]
                if task.rounds and record["plans"]:
                    waiting.appendleft(Task(task.name, rounds=task.rounds - 1, times=times_of(known[task.name]), last=last))
                else:
                    del runs[task.name]
                yield record


def _record(workload: Workload, task: Task, made: Sequence[Made], target: str, known: Record | None, runs: Runs) -> Record:
    seen = {tuple(p["kernels"]) for p in known["plans"]} if known is not None else set()
    with torch.no_grad():
        record, new = measured(workload, [p for p in made if p.kernels not in seen], target, known)
    runs |= new
    return record if task.times is None else record | {"tuned": list(made[0].kernels)}


def times_of(record: Record) -> dict[str, float]:
    """Seconds by kernel identity, and of whole plans."""
    kernels = {identity: k["us"] for identity, k in record["kernels"].items()}
    plans = {whole(p["kernels"]): p["us"] for p in record["plans"] if len(p["kernels"]) > 1}
    return {identity: us * 1e-6 for identity, us in (kernels | plans).items() if us is not None}


def merged(records: Iterable[Record]) -> dict[str, Record]:
    """Records by program, each with the plans and kernels of all its lines."""
    found: dict[str, Record] = {}
    for r in records:
        if r["program"] not in found:
            found[r["program"]] = r
            continue
        old = found[r["program"]]
        plans = {tuple(p["kernels"]): p for p in (*old["plans"], *r["plans"])}
        both: Record = {"plans": list(plans.values()), "kernels": r["kernels"] | old["kernels"]}
        found[r["program"]] = old | r | both
    return found
