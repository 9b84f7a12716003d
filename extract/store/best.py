"""What a compile asks of the store: the fastest row of a kernel that was right whenever it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from emmy_eq.extract.store.record import Measurement
from emmy_eq.extract.store.store import Store

Fits = Callable[[str], bool]  # of a schedule row's text


def best(measurements: Iterable[Measurement], emmy_eq: str | None = None) -> tuple[str, float] | None:
    """(schedule row, median of all its samples in microseconds) of one kernel.  What was measured of the code generator of version
    ``emmy_eq`` is preferred to the rest.  A row that failed once, as one with a race may, is no candidate."""
    every = list(measurements)
    current = [m for m in every if m.key.emmy_eq == emmy_eq]
    found = current if any(m.passed for m in current) else every
    failed = {m.key.schedule for m in found if not m.passed}
    samples: dict[str, list[float]] = {}
    for m in found:
        if m.passed and m.key.schedule not in failed:
            samples.setdefault(m.key.schedule, []).extend(m.samples)
    return min(((row, median(times)) for row, times in samples.items()), key=lambda x: (x[1], x[0]), default=None)


def best_row(
    store: Store, identity: str, target: str, device: str | None = None, emmy_eq: str | None = None, fits: Fits = lambda row: True
) -> str | None:
    """The fastest row that ``fits`` known of kernel ``identity`` on ``device``; None: on any device that ``target`` stands for."""
    found = best([m for m in store.of(identity, target) if device in (None, m.key.device) and fits(m.key.schedule)], emmy_eq)
    return found[0] if found is not None else None


def best_times(store: Store, target: str, emmy_eq: str | None = None, fits: Fits = lambda row: True) -> dict[str, float]:
    """Seconds of the fastest row that ``fits`` of every kernel that was measured for ``target``, by kernel identity."""
    found: dict[str, list[Measurement]] = {}
    for m in store.all():
        if m.key.target == target and fits(m.key.schedule):
            found.setdefault(m.key.kernel, []).append(m)
    rows = {kernel: best(every, emmy_eq) for kernel, every in found.items()}
    return {kernel: row[1] * 1e-6 for kernel, row in rows.items() if row is not None}
