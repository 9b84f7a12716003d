"""What a tuning run found, as a table and as records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from emmy_eq.codegen.tune.session import Tuned, Tuning
from emmy_eq.extract.store import Measurement
from emmy_eq.text import table


def record(done: Tuning) -> dict[str, Any]:
    """Times are medians in microseconds."""
    kernels = [
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
    return {"kernels": kernels, "interrupted": done.interrupted}


def text(done: Tuning) -> str:
    rows = [[k.kernel, us(_time(k.default)), us(_time(k.best)), _factor(k), str(k.measured), _marks(k), _row(k)] for k in done.kernels]
    return table(["kernel", "default us", "best us", "gain", "measured", "marks", "best row"], rows)


def _record(m: Measurement | None) -> dict[str, Any] | None:
    if m is None:
        return None
    return {"schedule": m.key.schedule, "outcome": m.outcome, "microseconds": _time(m), "error": m.error}


def _gain(k: Tuned) -> float | None:
    """How many times faster the best row is than the default."""
    if k.best is None or k.default is None or not k.default.passed:
        return None
    return k.default.microseconds / k.best.microseconds


def _factor(k: Tuned) -> str:
    gain = _gain(k)
    return f"{gain:.2f}" if gain is not None else "-"


def _time(m: Measurement | None) -> float | None:
    return m.microseconds if m is not None and m.passed else None


def us(time: float | None) -> str:
    return f"{time:.2f}" if time is not None else "-"


def _marks(k: Tuned) -> str:
    counted = Counter(m.outcome for m in k.marks)
    return " ".join(f"{n} {outcome}" for outcome, n in sorted(counted.items())) or "-"


def _row(k: Tuned) -> str:
    return k.problem or (k.best.key.schedule if k.best is not None else "-")
