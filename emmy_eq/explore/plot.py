"""The front as a picture: time by kernel for every plan, and memory traffic against arithmetic; of a sweep, fuse against cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emmy_eq.explore.sizes import Sweep, words
from emmy_eq.explore.studied import Study, shown
from emmy_eq.picture import COLORS, FAINT, INK, TEXT, picture


def plot(found: Study, path: Path, swept: Sweep | None = None) -> None:
    """Write a picture, in the format that the ending of ``path`` names; needs the extra ``plot``."""
    columns = 2 if swept is None else 3
    inches = (10.5 if swept is None else 15, max(3.4, 1.6 + 0.42 * len(found.plans)))
    with picture(path, f"Plans for {found.compiled.target}", inches, columns) as axes:
        _times(axes[0], found)
        _trade(axes[1], found)
        if swept is not None:
            _sweep(axes[2], swept)


def _times(ax: Any, found: Study) -> None:
    most = 1e6 * shown(found)
    for n, plan in enumerate(found.plans):
        left = 0.0
        for i, kernel in enumerate(plan.kernels):
            width = max(0.0, min(kernel.cost.modelled * 1e6, most - left))
            ax.barh(n, width, left=left, height=0.66, color=COLORS[i % len(COLORS)], edgecolor="white", linewidth=1)
            left += width
        if plan.measured is not None:
            ax.plot(plan.measured * 1e6, n, "D", color=INK, markersize=5, label="measured" if n == 0 else None)
        ax.text(left, n, f"  {'... ' * (left >= most)}{plan.modelled * 1e6:.2f}", va="center", color=TEXT)
    ax.set_yticks(range(len(found.plans)), [f"{n}{'*' if plan.chosen else ''}" for n, plan in enumerate(found.plans, 1)])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.16 * min(most, 1e6 * max(plan.modelled for plan in found.plans)))
    ax.set(title="Microseconds by kernel (* is compiled)", xlabel="modelled us; a diamond is measured", ylabel="plan")


def _trade(ax: Any, found: Study) -> None:
    near: dict[tuple[int, int], list[int]] = {}  # plans that are drawn at about the same place have one label
    wide, high = (max(x) - min(x) or 1 for x in ([p.bytes for p in found.plans], [p.flops for p in found.plans]))
    for n, plan in enumerate(found.plans, 1):
        ax.scatter(plan.bytes, plan.flops, s=60 + 15 * plan.launches, color=COLORS[0] if plan.chosen else FAINT, alpha=0.85, zorder=2)
        near.setdefault((round(12 * plan.bytes / wide), round(12 * plan.flops / high)), []).append(n)
    for place, plans in enumerate(near.values()):
        at, above = found.plans[plans[0] - 1], (14, -22)[place % 2]
        ax.annotate(
            ", ".join(map(str, plans)), (at.bytes, at.flops), xytext=(0, above), ha="center", textcoords="offset points", color=TEXT
        )
    ax.margins(0.2)
    _units(ax, "B", "")
    ax.grid(color="#eaecf0", zorder=0)
    ax.set(title="Memory against arithmetic, by plan (size: launches)", xlabel="bytes through DRAM", ylabel="flops")


def _units(ax: Any, x: str, y: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ax.xaxis.set_major_formatter(EngFormatter(x))
    ax.yaxis.set_major_formatter(EngFormatter(y))
    ax.xaxis.set_major_locator(MaxNLocator(5))


def _sweep(ax: Any, swept: Sweep) -> None:
    sizes = [p.value for p in swept.points]
    for color, name, seconds in (
        (COLORS[0], "fuse", [p.fuse.seconds for p in swept.points]),
        (COLORS[2], "cut", [p.cut.seconds for p in swept.points]),
        (INK, "chosen", [p.auto.seconds for p in swept.points]),
    ):
        ax.plot(sizes, [s * 1e6 for s in seconds], "--" if name == "chosen" else "o-", color=color, label=name, markersize=4)
    for at in swept.crossovers:
        ax.axvline(at, color=FAINT, linewidth=1, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.yaxis.set_major_formatter("{x:g}")
    few = max(p.cut.seconds for p in swept.points) < 10 * min(p.fuse.seconds for p in swept.points)
    ax.yaxis.set_minor_formatter("{x:g}" if few else "")
    ax.legend(frameon=False)
    ax.set(title=words(swept), xlabel=swept.name, ylabel="modelled us")
