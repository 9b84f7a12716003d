"""One workload: times of eager, torch.compile and emmy_eq, and the error of each against float64."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

import emmy_eq
from bench.workloads import Workload
from emmy_eq.timing import Times, interleaved

CONTENDERS = ("eager", "compile", "emmy_eq")


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender on one workload.  ``error`` is ||y - ref|| / ||ref|| against float64; ``setup`` is the seconds to its first result."""

    times: Times | None
    error: float | None
    setup: float
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    workload: str
    entries: dict[str, Entry]

    def record(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return {"workload": self.workload, **{name: asdict(entry) for name, entry in self.entries.items()}}

    @classmethod
    def read(cls, record: dict[str, Any]) -> Row:
        """Inverse of `record`; what else the file says of the run is left out."""
        found = {name: dict(record[name]) for name in CONTENDERS}
        times = {name: entry.pop("times") for name, entry in found.items()}
        return cls(record["workload"], {name: Entry(times[name] and Times(**times[name]), **entry) for name, entry in found.items()})


def compare(workload: Workload, target: str) -> Row:
    """Run the contenders on the current CUDA device.  One that fails gives its reason; a wrong result is never timed."""
    torch._dynamo.reset()
    function = workload.function("cuda")
    inputs = tuple(spec.draw("cuda", seed) for seed, spec in enumerate(workload.inputs))
    makers: dict[str, Callable[[], Callable[..., Any]]] = {
        "eager": lambda: function,
        "compile": lambda: torch.compile(function),
        "emmy_eq": lambda: emmy_eq.compile(function, inputs, target=target),
    }
    reference = in_float64(function, inputs, workload.sample)
    runs: dict[str, Callable[[], object]] = {}
    entries: dict[str, Entry] = {}
    for name, make in makers.items():
        start = time.perf_counter()
        try:
            made = make()
            result = made(*inputs)
            torch.cuda.synchronize()
        except Exception as error:
            entries[name] = Entry(None, None, time.perf_counter() - start, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
            continue
        entries[name] = Entry(None, relative_error(result, reference, workload.sample), time.perf_counter() - start)
        runs[name] = lambda made=made: made(*inputs)  # type: ignore[misc]
    for name, times in interleaved(runs).items():
        entries[name] = Entry(times, entries[name].error, entries[name].setup)
    return Row(workload.name, entries)


def in_float64(function: Callable[..., Any], inputs: tuple[Tensor, ...], sample: tuple[int, int] | None) -> Tensor:
    """The result with parameters and inputs widened to float64, on the sampled positions."""
    if sample is not None:
        inputs = tuple(x.narrow(sample[0], 0, sample[1]) for x in inputs)
    wide = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    if not isinstance(function, nn.Module):
        return torch.as_tensor(function(*wide))
    held = (*function.named_parameters(), *function.named_buffers())
    values = {name: x.double() for name, x in held if x.is_floating_point()}
    return torch.as_tensor(torch.func.functional_call(function, values, wide))


def relative_error(result: Tensor, reference: Tensor, sample: tuple[int, int] | None) -> float:
    """||result - reference|| / ||reference||, over the sampled positions; of positions (integers) as of numbers."""
    if sample is not None:
        result = result.narrow(sample[0], 0, sample[1])
    return float(((result.double() - reference).norm() / reference.double().norm()).detach())
