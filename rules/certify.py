"""``emmy-eq rules check``: every layer on every rule, over all cores, with progress; what it prints."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from textwrap import indent
from typing import Any

from emmy_eq import ops
from emmy_eq.rule import Rule
from emmy_eq.rules import certificates, library
from emmy_eq.rules.certificates import Certificate
from emmy_eq.text import table
from emmy_eq.verify import indices, mutants, shrink
from emmy_eq.verify.check import SOLVER, check_rule
from emmy_eq.verify.draws import Abstains
from emmy_eq.verify.laws import lawful, laws_of_row, verdict
from emmy_eq.verify.laws import mutants as mutants_of_row

INDEX_DRAWS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rule's certificate; ``seconds`` it took, mutants that no layer refuted, and the counterexample in words."""

    certificate: Certificate
    seconds: float
    survivors: tuple[str, ...] = ()
    counterexample: str = ""

    @property
    def holds(self) -> bool:
        return not self.certificate.refuted


def certify(rule: Rule) -> Outcome:
    """All layers on ``rule``, and its mutants where it holds."""
    start = time.perf_counter()
    try:
        found, survivors, told = _certified(rule)
    except Exception as error:  # a body is anyone's code
        why = f"evaluating it raised {type(error).__name__}: {error}"
        found, survivors, told = Certificate(rule.name, certificates.key(rule), 0, {}, {}, why), (), ""
    return Outcome(found, time.perf_counter() - start, survivors, told)


def _certified(rule: Rule) -> tuple[Certificate, tuple[str, ...], str]:
    """The certificate, what its surviving mutants changed, and the counterexample in words."""
    verdict = check_rule(rule)
    if verdict.holds:
        verdict = lawful(rule, verdict)
    if not verdict.holds:
        why = f"{verdict.layer}: {verdict.why}" if verdict.layer else "its guard never held, so nothing was tested"
        told = shrink.told(rule, verdict) if verdict.layer else ""
        found = Certificate(rule.name, certificates.key(rule), verdict.draws, verdict.layers, {}, why)
        return found, (), told or str(verdict.counterexample)
    fates = list(mutants.fates(rule))
    counts = Counter(fate for _, fate in fates)
    found = Certificate(rule.name, certificates.key(rule), verdict.draws, verdict.layers, dict(sorted(counts.items())))
    return found, tuple(m.what for m, fate in fates if fate == "survived"), ""


def certify_all(
    chosen: Sequence[Rule], files: Sequence[str] = (), progress: Callable[[str], None] = lambda line: None, jobs: int | None = None
) -> list[Outcome]:
    """`certify` for each, in the order given, and splits and index expressions with the library; the library's certificates are stored.

    Every process reads the rule ``files`` anew.
    """
    jobs = min(jobs or os.cpu_count() or 1, len(chosen))
    names = [rule.name for rule in chosen]
    done: dict[str, Outcome] = {}
    for outcome in map(certify, chosen) if jobs <= 1 else _parallel(names, tuple(files), jobs):
        done[outcome.certificate.rule] = outcome
        progress(f"[{len(done)}/{len(names)}] {outcome.certificate.rule} {outcome.seconds:.1f} s" + ("" if outcome.holds else " REFUTED"))
    found = [done[name] for name in names]
    own = [o.certificate for o in found if o.certificate.rule in library()]
    splits = [certify_split(row) for row in ops.carriers().values()] if len(own) > 1 else []
    if own:
        certificates.store([*own, *(o.certificate for o in splits)])
    return [*found, *splits, certify_indices()] if splits else found


def _parallel(names: Sequence[str], files: tuple[str, ...], jobs: int) -> Iterator[Outcome]:
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:  # a rule's body cannot be sent, its name can
        for future in as_completed([pool.submit(_named, name, files) for name in names]):
            yield future.result()


def _named(name: str, files: tuple[str, ...]) -> Outcome:
    return certify(_rules(files)[name])


@cache
def _rules(files: tuple[str, ...]) -> dict[str, Rule]:
    from emmy_eq import extensions

    return library() | {rule.name: rule for path in files for rule in extensions.from_file(path)}


def certify_indices() -> Outcome:
    """z3 on `emmy_eq.index.simplify`, the rewriter of index expressions: a row beside the rules, stored nowhere."""
    start, why, said = time.perf_counter(), "", "proved"
    try:
        why = indices.simplify_refuted(INDEX_DRAWS) or ""
    except Abstains as reason:
        said = f"abstains: {reason}"
    found = Certificate("index.simplify", "", INDEX_DRAWS, {SOLVER: said}, {}, why and f"{SOLVER}: {why}")
    return Outcome(found, time.perf_counter() - start)


def certify_split(row: ops.Twist | ops.Best) -> Outcome:
    """The laws that let a fold run in blocks, and the mutants of its row."""
    start = time.perf_counter()
    verdicts = [verdict(law) for law in laws_of_row(row)]
    why = next((f"{v.rule}, {v.layer}: {v.why}" for v in verdicts if not v.holds), "")
    fates = {what: all(verdict(law).holds for law in laws_of_row(wrong)) for what, wrong in mutants_of_row(row).items()}
    survivors = tuple(what for what, holds in fates.items() if holds)
    counts = {"killed": len(fates) - len(survivors), "survived": len(survivors)}
    draws = min(v.draws for v in verdicts)
    found = Certificate(certificates.splits()[row.name], certificates.split_key(row), draws, verdicts[0].layers, counts, why)
    return Outcome(found, time.perf_counter() - start, survivors)


def show(found: Sequence[Outcome]) -> str:
    """A line a rule; then survivors, counterexamples, and the mutation score."""
    lines = [table(["rule", "layers", "draws", "seconds", "mutants", "verdict"], [_row(o) for o in found])]
    layers = sorted({name for o in found for name in _spoke(o.certificate)})
    lines += [f"layers: {', '.join(layers)}"] if layers else []
    for o in found:
        if not o.holds:
            lines.append(f"{o.certificate.rule} is refuted by {o.certificate.refuted}\n{indent(o.counterexample, '    ')}")
        lines += [f"{o.certificate.rule}: no layer refutes it with {what}" for what in o.survivors]
    killed, counted = certificates.score([o.certificate for o in found])
    if counted:
        same = sum(o.certificate.mutants.get("equivalent", 0) for o in found)
        others = f" ({same} more {'is a true rule' if same == 1 else 'are true rules'})" if same else ""
        lines.append(f"mutants killed: {killed} of {counted}, {100 * killed / counted:.1f} %{others}")
    return "\n".join(lines)


def _row(o: Outcome) -> list[str]:
    c = o.certificate
    spoke = [name.split()[0] for name in _spoke(c)]
    killed, counted = certificates.score([c])
    return [c.rule, " ".join(sorted(spoke)), str(c.draws), f"{o.seconds:.1f}", f"{killed}/{counted}", "holds" if o.holds else "REFUTED"]


def _spoke(c: Certificate) -> list[str]:
    """The layers that did not abstain."""
    return [name for name, said in c.layers.items() if not said.startswith("abstains")]


def record(o: Outcome) -> dict[str, Any]:
    """For ``--json``."""
    c = o.certificate
    return {"passed": o.holds, "seconds": o.seconds, "counterexample": o.counterexample, "survivors": list(o.survivors), **asdict(c)}


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
