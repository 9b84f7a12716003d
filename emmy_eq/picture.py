"""One look for all plots, and the file that they end in; needs the extra ``plot``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emmy_eq.errors import InvalidInput

COLORS = ("#3454d1", "#21867a", "#b96a1c", "#8a5cc2", "#c2455f", "#5b6b84")
FAINT, TEXT, INK = "#98a2b3", "#475467", "#1c2330"
_STYLE: Any = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelcolor": TEXT,
    "xtick.color": TEXT, "ytick.color": TEXT, "svg.hashsalt": "emmy_eq", "svg.fonttype": "none",
}  # fmt: skip


@contextmanager
def picture(path: Path, title: str, inches: tuple[float, float], columns: int = 1) -> Iterator[list[Any]]:
    """Axes side by side to draw on; afterwards they are in ``path``, in the format that its ending names."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInput("--plot", "it needs matplotlib: pip install 'emmy_eq[plot]'") from error
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        yield list(figure.subplots(1, columns, squeeze=False)[0])
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"--plot {path}", str(error)) from error
