"""Saturation: a term program and rules go in, every equal form that they reach comes out, as plain arrays.

egglog does the work.  Phases alternate round after round (analyses to their fixpoint first, since guards ask them), with
limits checked after every step; when no phase adds anything the e-graph is saturated.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from emmy_eq import encode, progress, signature
from emmy_eq.rule import Phase, Rounding, Rule
from emmy_eq.terms import Axis, AxisTable, InputBuf, Result, TermProgram

if TYPE_CHECKING:
    from emmy_eq import readback


@dataclass(frozen=True, slots=True)
class ENode:
    """One member of a class.  ``op`` and ``attr`` as in `emmy_eq.terms.Val`, ``children`` are class numbers.

    A load of a stored value is ``ENode("load", (*gather indices, stored class), ("stored", mask, idxs))``, ``idxs``
    aligned with the axes of mask, ascending; of an input, ``ENode("load", gather indices, (InputBuf, idxs))``.
    """

    op: str
    children: tuple[int, ...]
    attr: Any


@dataclass(frozen=True, slots=True)
class Seam:
    """A tensor of the source program: the class of its value, the memory order of its axes, the classes that it was computed from."""

    name: str
    cls: int
    axes: tuple[Axis, ...]
    made_of: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop short of saturation; ``seconds`` is a last resort, since it makes the result depend on the machine.

    ``megabytes``: what the process's peak may grow by meanwhile.
    """

    rounds: int = 40
    rows: int = 50_000
    seconds: float = 60.0
    megabytes: int = 8_000


@dataclass(frozen=True, slots=True)
class Report:
    """``rows`` counts e-nodes, ``matches`` how often each rule matched.

    ``stopped`` names the limit that was met, if one was, and ``most`` the rule that matched most often in the step that made the
    e-graph grow most.
    """

    rows: int
    classes: int
    rounds: int
    seconds: float
    stopped: str | None
    matches: Mapping[str, int] = field(default_factory=dict)
    most: str = ""

    @property
    def saturated(self) -> bool:
        return self.stopped is None


def together(reports: Sequence[Report]) -> Report:
    """Of several e-graphs."""
    matches: Counter[str] = Counter()
    for r in reports:
        matches.update(r.matches)
    stopped = next((r for r in reports if r.stopped is not None), reports[0])
    rows, classes = sum(r.rows for r in reports), sum(r.classes for r in reports)
    rounds, seconds = max(r.rounds for r in reports), sum(r.seconds for r in reports)
    return Report(rows, classes, rounds, seconds, stopped.stopped, matches, stopped.most)


@dataclass(frozen=True, slots=True)
class Saturated:
    """The e-graph after saturation.  Class numbers follow the structure (roots first), never egglog's ids."""

    classes: tuple[tuple[ENode, ...], ...]
    free: tuple[int, ...]
    dtype: tuple[str, ...]
    roots: tuple[int, ...]
    seams: tuple[Seam, ...]
    axes: AxisTable
    inputs: tuple[InputBuf, ...]
    results: tuple[Result, ...]
    report: Report


def saturate(program: TermProgram, rules: Sequence[Rule], limits: Limits = Limits(), certified: bool = True) -> Saturated:
    """Apply ``rules`` to ``program`` until nothing new appears or a limit is met.

    With an axis of extent 0 only EXACT rules apply: an empty sum is 0, which a * 0 is not where a is infinite.
    Rules that are not ``certified`` are tried in a process of their own first.
    Raises `emmy_eq.readback.Inconsistent` when two terms that cannot be equal were found equal: a rule is unsound.
    """
    from emmy_eq import readback
    from emmy_eq.probe import survived

    start = time.perf_counter()
    if any(a.extent == 0 for a in program.axes.axes):
        rules = [r for r in rules if r.rounding is Rounding.EXACT]
    encoded = encode.encode(program)
    texts = [text for r in rules for text in r.to_egglog(encoded.reals)]
    lines = "\n".join(encoded.lines)
    body = "\n".join([*(f"(ruleset {p})" for p in Phase), *signature.applicable(texts, lines), lines])
    text = signature.signature(body) + "\n" + body
    run = Run(bindings().EGraph(), limits, None if certified else survived(text, encoded, program.axes, limits))
    tables, stopped = run.saturate(text, encoded, program.axes)
    most = max(run.growth.values(), default=(0.0, ""))[1] if stopped is not None else ""
    report = Report(0, 0, run.rounds, time.perf_counter() - start, stopped, _fired(run.matches, rules), most)
    return readback.read(tables, program, encoded, report)


_LINES = 32  # whole commands each


class Run:
    """One e-graph on its way to saturation.  ``most``: steps that are known to be safe, and the limit that the next one meets."""

    def __init__(self, graph: Any, limits: Limits, most: tuple[int, str] | None = None, stepped: Callable[[], None] | None = None) -> None:
        self.graph, self.limits, self.most, self.stepped = graph, limits, most, stepped
        self.start = time.perf_counter()
        self.peak = _peak()
        self.steps = 0
        self.rounds = 0
        self.matches: Counter[str] = Counter()
        self.rows = 0
        self.growth: dict[Phase, tuple[float, str]] = {}  # times the rows before, in the last step that added any; its most frequent rule

    def saturate(self, text: str, encoded: encode.Encoding, axes: AxisTable) -> tuple[readback.Tables, str | None]:
        """Run the program ``text``: its tables, and the limit that was met, if one was."""
        from emmy_eq import readback
        from emmy_eq.fold import foldings

        def tables() -> readback.Tables:
            self.execute("(run-schedule (saturate (run analysis)))")  # of what the last step made
            return readback.tabulate(self.graph, encoded, axes)

        self.execute(text)
        while True:
            stopped = self.to_fixpoint()
            found = tables()
            equalities = foldings(found, axes)
            if not equalities:
                return found, stopped
            self.execute("\n".join(equalities))
            if stopped is not None:
                return tables(), stopped

    def execute(self, text: str) -> list[Any]:
        """Run ``text`` a few lines at a time: a parsed command carries a copy of the whole text that it came from."""
        lines = text.split("\n")
        chunks = ("\n".join(lines[n : n + _LINES]) for n in range(0, len(lines), _LINES))
        return [out for chunk in chunks for out in self.graph.run_program(*self.graph.parse_program(chunk))]

    def to_fixpoint(self) -> str | None:
        """Rounds of all phases until none adds anything; returns the limit that was met before that, if one was."""
        changed = True
        while changed:
            if self.rounds == self.limits.rounds:
                return "rounds"
            self.rounds += 1
            changed = False
            for phase in Phase:
                if self.most is not None and self.steps == self.most[0]:
                    return self.most[1]
                if self.rows * self.growth.get(phase, (1.0, ""))[0] > self.limits.rows:
                    return "rows"  # by all appearances after this step, which nothing could interrupt
                progress.note(f"round {self.rounds}, {self.rows} rows")
                updated, limit = self.step(phase)
                changed |= updated
                if limit is not None:
                    return limit
        return None

    def step(self, phase: Phase) -> tuple[bool, str | None]:
        """One step of ``phase``: whether it added anything, and the limit that it met."""
        step = f"(saturate (run {phase}))" if phase is Phase.FUSION else f"(run {phase})"
        self.steps += 1
        ran, printed = self.execute(f"(run-schedule (saturate (run analysis)) {step}) (print-size)")
        matched: Counter[str] = Counter()
        for variant, count in ran.report.num_matches_per_rule.items():
            matched[variant.partition(".")[0]] += count
        self.matches += matched
        sizes = dict(printed.sizes)
        rows = sum(n for name, n in sizes.items() if name[0].isupper())
        if rows > self.rows:
            most = max(sorted(matched.keys() - {"analysis", "constant"}), key=matched.__getitem__, default="")
            self.growth[phase] = (rows / self.rows if self.rows else 1.0, most)
        self.rows = rows
        if self.stepped is not None:
            self.stepped()
        return ran.report.updated, _exceeded(self.limits, sizes, self.start, self.peak)


def _fired(matches: Counter[str], rules: Sequence[Rule]) -> dict[str, int]:
    """How often each rule matched, all its directions and dtypes together; those that never did are left out."""
    return {r.name: matches[r.name] for r in rules if matches[r.name]}


def _peak() -> float:
    """Most megabytes that this process has had so far."""
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _exceeded(limits: Limits, sizes: dict[str, int], start: float, peak: float) -> str | None:
    if sizes["Conflict"]:
        return "conflict"
    if sum(n for name, n in sizes.items() if name[0].isupper()) > limits.rows:
        return "rows"
    if time.perf_counter() - start > limits.seconds:
        return "seconds"
    if _peak() - peak > limits.megabytes:
        return "megabytes"
    return None


def bindings() -> Any:
    """egglog's extension module, loaded without the Python DSL around it (0.03 s instead of 0.45 s)."""
    name = "egglog.bindings"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.util.find_spec("egglog")
    spec = package and PathFinder.find_spec(name, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("egglog is not installed", name="egglog")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
