"""The plan of a chain of layers, made of their own plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emmy_eq.extract.climb import Met
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.nest import Output
from emmy_eq.extract.plan import Plan
from emmy_eq.loop_ir.canonical import rename
from emmy_eq.terms import InputBuf, Result


def joined(layers: Sequence[tuple[Plan, Mapping[str, str]]], inputs: Sequence[InputBuf], aliases: Sequence[str | None]) -> Plan:
    """``layers`` in order, each with the names of its buffers in the whole program; ``aliases`` of its outputs ``out0``, ...

    What rules made keeps its name with a number, where several layers have it.
    """
    taken = {b.name for b in inputs} | {name for _, names in layers for name in names.values()}
    kernels: list[Planned] = []
    results: dict[str, Result] = {}
    for plan, names in layers:
        called = dict(names)
        for buffer in (o.buffer for k in plan.kernels for o in k.outputs if o.buffer not in called):
            called[buffer] = _free(buffer, taken)
            taken.add(called[buffer])
        kernels += [_renamed(k, len(kernels) + n, called) for n, k in enumerate(plan.kernels)]
        results |= {called[r.name]: r for r in plan.results}
    found = tuple(replace(results[f"out{k}"], name=f"out{k}", alias=alias) for k, alias in enumerate(aliases))
    first, _ = layers[0]
    stored = tuple(sorted({o.buffer for k in kernels for o in k.outputs} - {r.name for r in found}))
    costs = [k.cost for k in kernels]
    flops = sum(sum(c.flops.values()) for c in costs)
    whole = Met(stored, len(kernels), sum(c.seconds for c in costs), flops, sum(c.bytes for c in costs))
    seconds = sum({id(plan): plan.search_seconds for plan, _ in layers}.values())
    return Plan(tuple(kernels), found, tuple(inputs), first.target, (whole,), seconds)


def _free(name: str, taken: set[str]) -> str:
    n, free = 0, name
    while free in taken:
        n += 1
        free = f"{name}_{n}"
    return free


def _renamed(k: Planned, number: int, called: Mapping[str, str]) -> Planned:
    """As kernel ``number`` of the whole; ``k`` is called after a tensor, or after a value that rules made."""
    stem = k.name.partition("_")[2]
    name = f"k{number}_{called.get(stem, stem)}"
    buffers = {b.name: called[b.name] for b in (*k.loops.inputs, *k.loops.outputs)}
    outputs = tuple(Output(called[o.buffer], o.val, o.axes) for o in k.outputs)
    return Planned(name, outputs, rename(k.loops, buffers, name), k.cost)
