"""One program on several targets, from one saturation: where the plans differ, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from emmy_eq import loop_ir
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.cost import cost
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.plan import Plan
from emmy_eq.extract.targets import Target, target
from emmy_eq.pipeline import Compiled
from emmy_eq.text import binary, quantity, table


def compiled_for(first: Compiled, names: str) -> list[Compiled]:
    """``names``: targets with commas between."""
    wanted = [target(name.strip()).name for name in names.split(",") if name.strip()]  # an unknown one is said before any search
    if len(wanted) != len(set(wanted)) or not wanted:
        raise InvalidInput(f"--targets {names}", "it is different targets with commas between")
    return [first.on(name) for name in wanted]


def text(programs: Sequence[Compiled]) -> str:
    """A line a target; a line a kernel, side by side; and the reasons where plans differ."""
    head = ["target", "launches", "model us", "DRAM", "L2", "flops"]
    rows = [
        [
            str(p.target), str(len(p.plan.kernels)), _us(p.plan.seconds), binary(p.plan.bytes),
            binary(sum(k.cost.l2_bytes for k in p.plan.kernels)), quantity(p.plan.flops),
        ]
        for p in programs
    ]  # fmt: skip
    return "\n\n".join([table(head, rows), _side_by_side(programs), "\n".join(reasons(programs))])


def stored(plan: Plan) -> tuple[str, ...]:
    results = {r.name for r in plan.results}
    return tuple(sorted(o.buffer for k in plan.kernels for o in k.outputs if o.buffer not in results))


def _side_by_side(programs: Sequence[Compiled]) -> str:
    """A line a buffer that some kernel writes: the kernel's time and roof, ``with`` its first output, or ``-`` where readers compute it."""
    columns: list[dict[str, str]] = []
    for p in programs:
        columns.append({})
        for k in p.plan.kernels:
            first, *others = (o.buffer for o in k.outputs)
            columns[-1][first] = f"{_us(k.cost.seconds)} {k.cost.bound}"
            columns[-1] |= dict.fromkeys(others, f"with {first}")
    fullest = max(columns, key=len)
    names = dict.fromkeys(name for column in (fullest, *columns) for name in column)
    return table(["us and roof", *(p.target.name for p in programs)], [[n, *(c.get(n, "-") for c in columns)] for n in names])


@dataclass(frozen=True, slots=True)
class Difference:
    """Kernels of one plan, and those that another plan has in their place."""

    ours: tuple[Planned, ...]
    theirs: tuple[Planned, ...]

    @property
    def cuts(self) -> tuple[set[str], set[str]]:
        """What only the first stores, what only the second does."""
        a, b = ({o.buffer for k in side for o in k.outputs} for side in (self.ours, self.theirs))
        return a - b, b - a


def differences(a: Plan, b: Plan) -> list[Difference]:
    """The kernels that are not in both, in groups that compute the same."""
    in_a, in_b = ({loop_ir.identity(k.loops) for k in plan.kernels} for plan in (a, b))
    ours = [k for k in a.kernels if loop_ir.identity(k.loops) not in in_b]
    theirs = [k for k in b.kernels if loop_ir.identity(k.loops) not in in_a]
    joined = set(stored(a)) ^ set(stored(b))  # a reader in one plan does the work of a writer in the other
    groups = nx.Graph()
    for side, kernels in enumerate((ours, theirs)):
        for n, k in enumerate(kernels):
            groups.add_edges_from(((side, n), x.name) for x in k.loops.outputs)
            groups.add_edges_from(((side, n), x.name) for x in k.loops.inputs if x.name in joined)
    parts = (sorted(n for n in part if not isinstance(n, str)) for part in nx.connected_components(groups))
    return [Difference(*(tuple(ks[n] for s, n in part if s == side) for side, ks in enumerate((ours, theirs)))) for part in parts]


def reasons(programs: Sequence[Compiled]) -> list[str]:
    """Against the first target: what each other stores or computes otherwise, and what both ways would cost on both."""
    first, *others = programs
    found = []
    for other in others:
        parts = differences(first.plan, other.plan)
        found += [_reason(part, first.target, other.target) for part in parts]
        if not parts:
            found.append(f"{other.target.name}: the kernels are those of {first.target.name}")
    return found


def _reason(part: Difference, first: Target, other: Target) -> str:
    dropped, added = part.cuts
    words = [f"stores {', '.join(sorted(added))}"] if added else []
    words += [f"computes {', '.join(sorted(dropped))} in what reads it"] if dropped else []
    what = " and ".join(words) or f"computes {', '.join(o.buffer for k in part.theirs for o in k.outputs)} otherwise"
    here, there = (f"{_on(part.theirs, t)} instead of {_on(part.ours, t)}" for t in (other, first))
    return f"{other.name} {what}: {here}; on {first.name} that would be {there}"


def _on(kernels: Sequence[Planned], target: Target) -> str:
    """Modelled microseconds on any target, with the roofs."""
    costs = [cost(k.loops, target) for k in kernels]
    return f"{_us(sum(c.modelled for c in costs))} us ({', '.join(dict.fromkeys(c.bound for c in costs))})"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


def records(programs: Sequence[Compiled]) -> dict[str, Any]:
    plans = [
        {
            "target": p.target.name,
            "kernels": [{"name": k.name, "microseconds": round(k.cost.seconds * 1e6, 3), "bound": k.cost.bound} for k in p.plan.kernels],
            "microseconds": round(p.plan.seconds * 1e6, 3),
            "bytes": p.plan.bytes,
            "flops": p.plan.flops,
            "stored": stored(p.plan),
        }
        for p in programs
    ]
    return {"plans": plans, "differences": reasons(programs)}
