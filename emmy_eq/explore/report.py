"""The front as text and as records."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from emmy_eq.explore.studied import Study
from emmy_eq.extract.front import Candidate
from emmy_eq.text import binary, quantity, some, table

WIDE = 8  # names or trades in a row
AGAINST = "each cut against the same plan without it; --place NAME=cut or NAME=fuse pins one:"
HEAD = ("plan", "launches", "DRAM", "L2", "flops", "model us", "measured us", "stored between kernels")


def rows(found: Study) -> list[list[str]]:
    """A row a plan, aligned with `HEAD`; the chosen one has a star."""
    return [
        [
            f"{n}*" if plan.chosen else str(n),
            str(plan.launches),
            binary(plan.bytes),
            binary(plan.l2_bytes),
            quantity(plan.flops),
            f"{plan.modelled * 1e6:.2f}",
            measured(plan),
            some(plan.stored, WIDE) or "nothing",
        ]
        for n, plan in enumerate(found.plans, 1)
    ]


def measured(plan: Candidate) -> str:
    return f"{plan.measured * 1e6:.2f}" if plan.measured is not None else "-"


def text(found: Study) -> str:
    """The front as a table, then what each cut trades in the plans that make it."""
    seen = f"{len(found.plans)} plans on the front for {found.compiled.target}; * is the one that a compile takes"
    lines = trades(found)
    said = [AGAINST, *lines] if lines else ["No plan stores what it could do without."]
    tensors = {seam.name for seam in found.compiled.egraph.seams}
    made = sorted({name for plan in found.plans for name in plan.stored} - tensors)
    others = [f"made by rules, no tensor of the program: {some(made, WIDE)}"] if made else []
    return "\n\n".join([table(HEAD, rows(found)), seen, "\n".join([*said, *others])])


def trades(found: Study) -> list[str]:
    """A line a trade with the plans that make it; of each plan those that change most."""
    by_words: dict[str, list[int]] = {}
    left = []
    for n, plan in enumerate(found.plans, 1):
        largest = sorted(plan.trades, key=lambda t: -abs(t.seconds))[:WIDE]
        for trade in plan.trades:
            if trade in largest:
                by_words.setdefault(str(trade), []).append(n)
        if len(plan.trades) > len(largest):
            left.append(f"plan {n} makes {len(plan.trades) - len(largest)} smaller trades, which --json and --html list")
    numbers = {words: f"plan{'s' * (len(plans) > 1)} {', '.join(map(str, plans))}" for words, plans in by_words.items()}
    return [*(f"{numbers[words]}: {words}" for words in by_words), *left]


def records(found: Study) -> list[dict[str, Any]]:
    """One record a plan; times in microseconds."""
    return [
        {
            "chosen": plan.chosen,
            "kernels": plan.launches,
            "stored": plan.stored,
            "bytes": plan.bytes,
            "l2_bytes": plan.l2_bytes,
            "flops": plan.flops,
            "microseconds": round(plan.modelled * 1e6, 3),
            "measured_us": round(plan.measured * 1e6, 3) if plan.measured is not None else None,
            "trades": [asdict(trade) | {"words": str(trade)} for trade in plan.trades],
            "by_kernel": [
                {"name": k.name, "microseconds": round(k.cost.modelled * 1e6, 3), "bound": k.cost.bound, "flops": dict(k.cost.flops)}
                for k in plan.kernels
            ],
        }
        for plan in found.plans
    ]
