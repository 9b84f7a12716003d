"""What a store holds, a line a kernel and device."""

from __future__ import annotations

from typing import Any

from emmy_eq.extract.store.best import best
from emmy_eq.extract.store.record import Measurement
from emmy_eq.extract.store.store import Store
from emmy_eq.text import table


def kernel_records(store: Store) -> list[dict[str, Any]]:
    """Times are medians in microseconds; ``marks``: rows that failed."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for m in store.all():
        groups.setdefault((m.key.kernel, m.key.target, m.key.device), []).append(m)
    return [_record(*key, found) for key, found in sorted(groups.items())]


def kernel_table(store: Store) -> str:
    rows = [
        [r["kernel"][:12], r["target"], r["device"], str(r["rows"]), str(r["marks"]), _us(r["best_us"]), r["best"] or "-"]
        for r in kernel_records(store)
    ]
    if not rows:
        return f"No measurements in {store.path}."
    return table(["kernel", "target", "device", "rows", "marks", "best us", "best row"], rows)


def _us(time: float | None) -> str:
    return f"{time:.2f}" if time is not None else "-"


def _record(kernel: str, target: str, device: str, found: list[Measurement]) -> dict[str, Any]:
    top = best(found)
    return {
        "kernel": kernel,
        "target": target,
        "device": device,
        "rows": len({m.key.schedule for m in found}),
        "marks": len({m.key.schedule for m in found if not m.passed}),
        "best_us": top[1] if top is not None else None,
        "best": top[0] if top is not None else None,
        "last": max(m.at for m in found),
    }
