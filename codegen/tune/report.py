"""What a tuning run found, as a table and as records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from emmy_eq.codegen.tune.session import Tuned, Tuning
from emmy_eq.extract.store import Measurement
from emmy_eq.text import table


def records(done: Tuning) -> list[dict[str, Any]]:
    """One a kernel; times are medians in microseconds."""
    return [
        {
            "kernel": k.kernel,
            "identity": k.identity,
            "default": _record(k.default),
            "best": _record(k.best),
            "gain": _gain(k),
            "measured": k.measured,
            "marks": {m.key.schedule: f"{m.outcome}: {m.note}" for m in k.marks},
            "problem": k.problem,
        }
        for k in done.kernels
    ]


def table_of(done: Tuning) -> str:
    rows = [[k.kernel, _us(k.default), _us(k.best), _factor(k), str(k.measured), _marks(k), _row(k)] for k in done.kernels]
    return table(["kernel", "default us", "best us", "gain", "measured", "marks", "best row"], rows)


def _record(m: Measurement | None) -> dict[str, Any] | None:
    if m is None:
        return None
    return {"schedule": m.key.schedule, "outcome": m.outcome, "microseconds": m.microseconds if m.passed else None, "error": m.error}


def _gain(k: Tuned) -> float | None:
    """How many times faster the best row is than the default."""
    if k.best is None or k.default is None or not k.default.passed:
        return None
    return k.default.microseconds / k.best.microseconds


def _factor(k: Tuned) -> str:
    gain = _gain(k)
    return f"{gain:.2f}" if gain is not None else "-"


def _us(m: Measurement | None) -> str:
    return f"{m.microseconds:.2f}" if m is not None and m.passed else "-"


def _marks(k: Tuned) -> str:
    counted = Counter(m.outcome for m in k.marks)
    return " ".join(f"{n} {outcome}" for outcome, n in sorted(counted.items())) or "-"


def _row(k: Tuned) -> str:
    return k.problem or (k.best.key.schedule if k.best is not None else "-")
