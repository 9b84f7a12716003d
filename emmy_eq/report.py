"""What the command line prints of a compiled program: the e-graph, the summary, the outcome of a run; and of rules."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

from emmy_eq import loop_ir
from emmy_eq.text import binary, count, quantity, table

if TYPE_CHECKING:
    from emmy_eq.egraph import Report
    from emmy_eq.execute import Outcome
    from emmy_eq.pipeline import Compiled
    from emmy_eq.rule import Rule


def egraph(compiled: Compiled) -> str:
    """Size, the rules that matched, and how many equal forms each seam has; no seconds, so that the text is reproducible."""
    from emmy_eq.extract.climb import Search
    from emmy_eq.extract.pinned import made_by_rules

    graph = compiled.egraph
    head = f"e-graph: {graph.report.rows} rows in {graph.report.classes} classes after {graph.report.rounds} rounds, {_end(graph.report)}"
    seams = table(
        ["seam", "axes", "equal forms", "by operation"],
        [
            [s.name, ", ".join(f"{a.name} < {a.extent}" for a in s.axes), str(len(graph.classes[s.cls])), _forms(compiled, s.cls)]
            for s in graph.seams
        ],
    )
    finder = Search(graph, compiled.target)
    others = ", ".join(made_by_rules(finder.graph, finder.names))
    made = f"\n\nmade by rules, and pinned by --place as seams are: {others}" if others else ""
    return f"{head}\n\n{_matches(compiled, graph.report)}\n\n{seams}{made}"


def _matches(compiled: Compiled, report: Report) -> str:
    """The rules that matched, most often first."""
    rows = [[rule.name, str(rule), str(n)] for rule in compiled.rules if (n := report.matches.get(rule.name))]
    return table(["rule", "rewrite", "matches"], sorted(rows, key=lambda row: (-int(row[2]), row[0])))


def _forms(compiled: Compiled, cls: int) -> str:
    count = Counter(node.op for node in compiled.egraph.classes[cls])
    return ", ".join(op if n == 1 else f"{n} {op}" for op, n in sorted(count.items()))


def _end(graph: Report) -> str:
    most = f", where {graph.most} matched most" if graph.most else ""
    return "saturated" if graph.stopped is None else f"stopped at the limit on {graph.stopped}{most}"


def rules(chosen: Sequence[Rule]) -> str:
    """One line a rule: name, formula, what it does to rounding, phase."""
    return table(["rule", "rounding", "phase", "rewrite"], [[r.name, r.rounding.name.lower(), str(r.phase), str(r)] for r in chosen])


def rule(chosen: Sequence[Rule]) -> str:
    """Everything about each rule: its formula, its reason, its text in egglog."""
    paragraphs = []
    for r in chosen:
        paragraphs.append(f"{r.name}   {r.rounding.name.lower()}, phase {r.phase}, {r.source}")
        paragraphs += [indent(text, "    ") for text in (str(r), r.doc, "\n".join(r.to_egglog()))]
    return "\n\n".join(paragraphs)


def rule_record(r: Rule) -> dict[str, Any]:
    return {"name": r.name, "rounding": r.rounding.name.lower(), "phase": str(r.phase), "source": r.source, "rewrite": str(r), "doc": r.doc}


def fields(record: Any) -> dict[str, Any]:
    """A frozen record as a dict, with plain dicts for its mappings."""
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}


def records(rows: Sequence[dict[str, Any]], units: Mapping[str, str]) -> str:
    """Records side by side: a line a field (a line an entry, where the field is a mapping), a column a record; units by field."""
    flat = [dict(_flat(row)) for row in rows]
    head, *lines = [[key, *(_cell(row.get(key, "-"), units.get(key.split()[0], "")) for row in flat)] for key in flat[0]]
    return table(head, lines)


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from ((f"{key} {name}", v) for name, v in value.items())
        elif key != "source":  # too long for a column; --json has it
            yield key, value


def _cell(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return quantity(value, unit) if isinstance(value, float) or unit else str(value)


def kernel_records(compiled: Compiled) -> list[dict[str, Any]]:
    """One record a kernel of the plan: its modelled cost, its schedule row (none, where it writes nothing)."""
    made = {tile.name: str(tile.schedule) for tile in compiled.tile_ir}
    rows = {launched.name: made[kernel.name] for launched, (kernel, _) in zip(compiled.launched, compiled.calls, strict=True)}
    return [
        {
            "name": kernel.name,
            "identity": loop_ir.identity(kernel),
            "loop_ops": loop_ir.ops(kernel),
            "flops": sum(cost.flops.values()),
            "flops_by_unit": dict(compiled.flops[kernel.name]),
            "bytes": cost.bytes,
            "l2_bytes": cost.l2_bytes,
            "microseconds": round(cost.seconds * 1e6, 3),
            "bound": cost.bound,
            "schedule": rows.get(kernel.name),
        }
        for kernel, cost in ((planned.loops, planned.cost) for planned in compiled.plan.kernels)
    ]


def summary(compiled: Compiled) -> dict[str, Any]:
    """What ``compile --json`` prints."""
    graph, options = compiled.saturation, compiled.options
    return {
        "target": options.target,
        "accuracy": options.accuracy,
        "place": options.place,
        "kernels": kernel_records(compiled),
        "egraph": {"rows": graph.rows, "classes": graph.classes, "saturated": graph.saturated, "seconds": graph.seconds},
        "search": {"plans": len(compiled.plan.met), "seconds": compiled.plan.search_seconds},
        "seconds": compiled.seconds,
    }


def explain(compiled: Compiled, verbose: int = 0) -> str:
    """The kernels as a table, how they were found; 1: rules that matched and seconds; 2: the rewrites that made a difference."""
    records = kernel_records(compiled)
    kernels = table(
        ["kernel", "identity", "flops", "bytes", "model us", "bound", "operations"],
        [
            [
                k["name"], k["identity"][:12], quantity(k["flops"]), quantity(k["bytes"], "B"), f"{k['microseconds']:.1f}", k["bound"],
                ", ".join(f"{n} {op}" for op, n in k["loop_ops"].items()),
            ]
            for k in records
        ],
    )  # fmt: skip
    schedules = table(["kernel", "schedule row"], [[k["name"], k["schedule"] or "-"] for k in records])
    graph = compiled.saturation
    found = (
        f"e-graph: {graph.rows} rows in {graph.classes} classes, {_end(graph)} in {graph.seconds:.2f} s; "
        f"search: {count(len(compiled.plan.met), 'plan')} in {compiled.plan.search_seconds:.2f} s; target {compiled.target}"
    )
    parts = [kernels, schedules, found]
    if verbose:
        parts += [_levels(records), _matches(compiled, graph), _seconds(compiled.seconds)]
    if verbose > 1:
        from emmy_eq import steps

        parts.append(steps.show(steps.steps(compiled)))
    return "\n\n".join(parts)


def _levels(records: Sequence[dict[str, Any]]) -> str:
    """Exact counts of the Loop IR: bytes by the memory that they come from, flops by the unit that computes them."""
    units = sorted({unit for k in records for unit in k["flops_by_unit"]})

    def row(name: str, kernels: Sequence[dict[str, Any]]) -> list[str]:
        bytes_ = (binary(sum(k[level] for k in kernels)) for level in ("bytes", "l2_bytes"))
        return [name, str(len(kernels)), *bytes_, *(quantity(sum(k["flops_by_unit"].get(u, 0) for k in kernels)) for u in units)]

    rows = [*(row(k["name"], [k]) for k in records), row("all", records)]
    return table(["kernel", "launches", "DRAM", "L2", *(f"flops on {u}" for u in units)], rows)


def _seconds(stages: Mapping[str, float]) -> str:
    ours = sum(s for name, s in stages.items() if name != "import_torch")
    return table(["stage", "seconds"], [[name, f"{s:.3f}"] for name, s in (*stages.items(), ("all but import_torch", ours))])


def outcome(found: Outcome) -> str:
    """The results, their errors where they were checked, and times where they were taken."""
    where = "the GPU" if found.device == "cuda" else "the simulator"
    rows = [[str(n), f"{r.dtype}{list(r.shape)}", r.preview] for n, r in enumerate(found.outputs)]
    parts = [f"Ran on {where}.", table(["output", "type", "first values"], rows)]
    if any(r.error is not None for r in found.outputs):
        verdicts = [[f"{x:.2e}" for x in (r.error, r.eager_error, r.limit)] + ["ok" if r.passed else "FAILS"] for r in found.outputs]
        checks = [[str(n), *verdict] for n, verdict in enumerate(verdicts)]
        parts.append(table(["output", "error against float64", "eager's", "limit", "verdict"], checks))
    if found.times:
        times = [[name, f"{t.hot:.2f}", f"{t.cold:.2f}"] for name, t in found.times.items()]
        parts.append(table(["program", "hot us", "cold us"], times))
    return "\n\n".join(parts)
