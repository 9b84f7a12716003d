"""One program on several targets, from one saturation: where the plans differ, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.plan import Plan
from emmy_eq.extract.targets import Target
from emmy_eq.pipeline import Compiled
from emmy_eq.text import binary, quantity, table


def compiled_for(first: Compiled, names: str) -> list[Compiled]:
    """``names``: targets with commas between."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if len(wanted) != len(set(wanted)) or not wanted:
        raise InvalidInput(f"--targets {names}", "it is different targets with commas between")
    programs = [first.on(name) for name in wanted]
    for program in programs:
        program.target  # noqa: B018 (an unknown one is said before any search)
    return programs


def text(programs: Sequence[Compiled]) -> str:
    """A line a target, a line a stored value, and the reason where plans differ."""
    rows = [
        [
            str(p.target), str(len(p.plan.kernels)), f"{p.plan.seconds * 1e6:.2f}", binary(p.plan.bytes), quantity(p.plan.flops),
            ", ".join(k.cost.bound for k in p.plan.kernels), ", ".join(stored(p.plan)) or "nothing",
        ]
        for p in programs
    ]  # fmt: skip
    head = ["target", "kernels", "model us", "DRAM", "flops", "bound, by kernel", "stored between kernels"]
    return f"{table(head, rows)}\n\n{chr(10).join(reasons(programs))}"


def stored(plan: Plan) -> tuple[str, ...]:
    results = {r.name for r in plan.results}
    return tuple(sorted(o.buffer for k in plan.kernels for o in k.outputs if o.buffer not in results))


def _shape(plan: Plan) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(o.buffer for o in k.outputs) for k in plan.kernels)


def reasons(programs: Sequence[Compiled]) -> list[str]:
    """Against the first target: what each other stores or computes otherwise, and what the other's plan would cost there."""
    first, *others = programs
    found = []
    for other in others:
        ours, theirs = set(stored(first.plan)), set(stored(other.plan))
        if _shape(first.plan) == _shape(other.plan):
            found.append(f"{other.target.name}: the kernels are those of {first.target.name}")
            continue
        parts = [f"stores {', '.join(sorted(theirs - ours))}"] if theirs - ours else []
        parts += [f"computes {', '.join(sorted(ours - theirs))} in its readers"] if ours - theirs else []
        parts = parts or ["stores the same in other kernels"]
        found.append(f"{other.target.name} {' and '.join(parts)}: {_why(first, other)}; {_balance(first.target, other.target)}")
    return found


def _why(first: Compiled, other: Compiled) -> str:
    """The time of the first target's plan on the other, where all its cuts are seams and so can be pinned there."""
    seams = {s.name for s in other.egraph.seams}
    wanted = set(stored(first.plan))
    if not wanted <= seams:
        return f"{other.plan.seconds * 1e6:.2f} us there"
    pinned = other.placed({name: "cut" if name in wanted else "fuse" for name in sorted(seams)})
    return f"{other.plan.seconds * 1e6:.2f} us there, where the plan of {first.target.name} takes {pinned.plan.seconds * 1e6:.2f}"


def _balance(a: Target, b: Target) -> str:
    """Flops that a byte from DRAM costs: what decides between computing again and reading back."""
    return " against ".join(f"{t.flops['fma'] / t.dram_bandwidth:.1f} flops a byte of DRAM on {t.name}" for t in (b, a))


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
