"""``python -m bench --read FILE --plot FILE.svg``: how many times faster than eager and than torch.compile, workload by workload."""

from __future__ import annotations

from pathlib import Path

from bench.compare import Row
from emmy_eq.picture import COLORS, FAINT, TEXT, picture


def plot(rows: list[Row], path: Path, where: str) -> None:
    """Hot times of the others over ours, on a logarithmic axis; a contender without a time has no bar."""
    drawn = [row for row in rows if row.entries["emmy_eq"].times is not None]
    with picture(path, f"Speedup of emmy_eq on {where}", (8.5, 1.2 + 0.27 * len(drawn))) as (ax,):
        for place, (name, label, color) in enumerate((("eager", "PyTorch eager", FAINT), ("compile", "torch.compile", COLORS[0]))):
            for n, row in enumerate(drawn):
                other, ours = row.entries[name].times, row.entries["emmy_eq"].times
                if other is None or ours is None:
                    continue
                ratio, at = other.hot / ours.hot, n + 0.4 * place - 0.2
                ax.barh(at, ratio - 1, left=1, height=0.38, color=color, label=label if n == 0 else None)
                ax.text(max(ratio, 1), at, f" {ratio:.2f}", va="center", color=TEXT, fontsize=7)
        ax.axvline(1, color=TEXT, linewidth=0.8)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}x")
        ax.set_yticks(range(len(drawn)), [row.workload for row in drawn])
        ax.set_ylim(len(drawn) - 0.5, -0.5)
        ax.legend(frameon=False, loc="center right")
        ax.set(xlabel="times faster, hot, medians of interleaved runs (below 1: slower)")
