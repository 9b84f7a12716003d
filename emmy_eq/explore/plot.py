"""The front as a picture: time by kernel for every plan, and memory traffic against arithmetic; of a sweep, fuse against cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emmy_eq.errors import InvalidInput
from emmy_eq.explore.sizes import Sweep, words
from emmy_eq.explore.studied import Study

_COLORS = ("#3454d1", "#21867a", "#b96a1c", "#8a5cc2", "#c2455f", "#5b6b84")
_STYLE: Any = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#98a2b3",
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelcolor": "#475467",
    "xtick.color": "#475467", "ytick.color": "#475467",
}  # fmt: skip


def plot(found: Study, path: Path, swept: Sweep | None = None) -> None:
    """Write a picture, in the format that the ending of ``path`` names; needs the extra ``plot``."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInput("--plot", "it needs matplotlib: pip install 'emmy_eq[plot]'") from error
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.5 if swept is None else 15, max(3.4, 1.6 + 0.42 * len(found.plans))), layout="constrained")
        axes = figure.subplots(1, 2 if swept is None else 3)
        _times(axes[0], found)
        _trade(axes[1], found)
        if swept is not None:
            _sweep(axes[2], swept)
        figure.suptitle(f"Plans for {found.compiled.target}", x=0.01, ha="left", fontsize=12, fontweight="bold")
        try:
            figure.savefig(path, dpi=150)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"--plot {path}", str(error)) from error


def _times(ax: Any, found: Study) -> None:
    for n, plan in enumerate(found.plans):
        left = 0.0
        for i, kernel in enumerate(plan.kernels):
            width = kernel.cost.modelled * 1e6
            ax.barh(n, width, left=left, height=0.66, color=_COLORS[i % len(_COLORS)], edgecolor="white", linewidth=1)
            left += width
        if plan.measured is not None:
            ax.plot(plan.measured * 1e6, n, "D", color="#1c2330", markersize=5, label="measured" if n == 0 else None)
        ax.text(left, n, f"  {plan.modelled * 1e6:.2f}", va="center", color="#475467")
    ax.set_yticks(range(len(found.plans)), [f"{n}{'*' if plan.chosen else ''}" for n, plan in enumerate(found.plans, 1)])
    ax.invert_yaxis()
    ax.margins(x=0.14)
    ax.set(title="Microseconds by kernel (* is compiled)", xlabel="modelled us; a diamond is measured", ylabel="plan")


def _trade(ax: Any, found: Study) -> None:
    for n, plan in enumerate(found.plans, 1):
        ax.scatter(plan.bytes, plan.flops, s=60 + 25 * plan.launches, color=_COLORS[0] if plan.chosen else "#98a2b3", alpha=0.85, zorder=2)
        ax.annotate(f"{n}: {plan.launches}", (plan.bytes, plan.flops), xytext=(8, 7), textcoords="offset points", color="#475467")
    ax.margins(0.2)
    ax.grid(color="#eaecf0", zorder=0)
    ax.set(title="Memory against arithmetic (plan: launches)", xlabel="bytes through DRAM", ylabel="flops")


def _sweep(ax: Any, swept: Sweep) -> None:
    sizes = [p.value for p in swept.points]
    for color, name, seconds in (
        (_COLORS[0], "fuse", [p.fuse.seconds for p in swept.points]),
        (_COLORS[2], "cut", [p.cut.seconds for p in swept.points]),
        ("#1c2330", "chosen", [p.auto.seconds for p in swept.points]),
    ):
        ax.plot(sizes, [s * 1e6 for s in seconds], "--" if name == "chosen" else "o-", color=color, label=name, markersize=4)
    for at in swept.crossovers:
        ax.axvline(at, color="#98a2b3", linewidth=1, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.legend(frameon=False)
    ax.set(title=words(swept), xlabel=swept.name, ylabel="modelled us")
