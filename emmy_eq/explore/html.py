"""The explorer as one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from emmy_eq.explore import sizes
from emmy_eq.explore.graph import svg
from emmy_eq.explore.report import HEAD, rows
from emmy_eq.explore.sizes import Sweep
from emmy_eq.explore.studied import Study, shown
from emmy_eq.extract.front import Candidate
from emmy_eq.extract.merge import Planned
from emmy_eq.text import count

_SHOWN = ("tensor", "loop", "tile", "kernel", "cuda")  # IRs side by side
_SCRIPT = """
const show = n => document.querySelectorAll("[data-plan]").forEach(e => e.classList.toggle("on", e.dataset.plan == n));
document.querySelectorAll("tr[data-plan]").forEach(e => e.addEventListener("click", () => show(e.dataset.plan)));
"""


def page(found: Study, code: str, swept: Sweep | None = None) -> str:
    """``code``: the program as the user wrote it."""
    style = files("emmy_eq.explore").joinpath("page.css").read_text()
    chosen = next((n for n, plan in enumerate(found.plans, 1) if plan.chosen), 1)
    sections = [
        _section("Plans", "Click a plan to see its kernels. The star marks the one that a compile takes.", _front(found, chosen)),
        _section("Where the time goes", "Microseconds by kernel; a bar is a plan.", _bars(found, chosen)),
        _section("Kernels", "Buffers that stay in memory between kernels are edges.", _graphs(found, chosen)),
        *([_section("Fuse or cut", f"{sizes.words(swept)}.", _sweep(swept))] if swept is not None else []),
        _section("Seams of the e-graph", "Tensors of the source program, and in how many equal forms each is known.", _seams(found)),
        _section("The program in every IR", "Of the chosen plan, left to right.", _stages(found)),
    ]
    title = f"{count(len(found.plans), 'plan')} for {found.compiled.target}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>emmy_eq: {escape(title)}</title><style>{style}</style></head>'
        f"<body><header><h1>{escape(title)}</h1><pre>{escape(code)}</pre></header><main>{''.join(sections)}</main>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _section(title: str, sentence: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(sentence)}</p>{body}</section>"


def _table(head: Sequence[str], body: Iterable[str]) -> str:
    return f'<div class="wide"><table><thead>{_cells("th", head)}</thead><tbody>{"".join(body)}</tbody></table></div>'


def _cells(tag: str, cells: Sequence[str], attributes: str = "") -> str:
    return f"<tr{attributes}>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _on(n: int, chosen: int, css: str = "") -> str:
    return f' data-plan="{n}" class="{css}{" on" if n == chosen else ""}"'


def _front(found: Study, chosen: int) -> str:
    body = (_cells("td", row, _on(n, chosen)) for n, row in enumerate(rows(found), 1))
    trades = (f"<ul{_on(n, chosen, 'choice')}>{_trades(plan)}</ul>" for n, plan in enumerate(found.plans, 1))
    return f"{_table(HEAD, body)}<h3>What each cut of this plan trades against the same plan without it</h3>{''.join(trades)}"


def _trades(plan: Candidate) -> str:
    return "".join(f"<li>{escape(str(t))}</li>" for t in plan.trades) or "<li>It stores nothing that it could do without.</li>"


def _bars(found: Study, chosen: int) -> str:
    longest = min(shown(found), max(plan.seconds for plan in found.plans))
    return "".join(
        f'<div{_on(n, chosen, "bar")}><b>{n}</b><div class="track">'
        + "".join(
            f'<span style="width:{100 * k.cost.seconds / longest:.2f}%" title="{escape(_time(k))}">{escape(k.name)}</span>'
            for k in plan.kernels
        )
        + f"</div><i>{plan.seconds * 1e6:.2f} us</i></div>"
        for n, plan in enumerate(found.plans, 1)
    )


def _time(kernel: Planned) -> str:
    return f"{kernel.name}: {kernel.cost.seconds * 1e6:.2f} us, {kernel.cost.bound}"


def _graphs(found: Study, chosen: int) -> str:
    return "".join(f"<div{_on(n, chosen, 'choice wide')}>{svg(plan)}</div>" for n, plan in enumerate(found.plans, 1))


def _sweep(swept: Sweep) -> str:
    head = [swept.name, "fuse us", "cut us", "chosen us", "faster"]
    times = ("fuse_us", "cut_us", "chosen_us")
    points = ([str(p[swept.name]), *(f"{p[x]:.2f}" for x in times), p["faster"]] for p in sizes.record(swept)["points"])
    return _table(head, (_cells("td", cells) for cells in points))


def _seams(found: Study) -> str:
    graph = found.compiled.egraph
    stored = {name for plan in found.plans if plan.chosen for name in plan.stored}
    body = (
        [s.name, " x ".join(str(a.extent) for a in s.axes), str(len(graph.classes[s.cls])), "stored" if s.name in stored else ""]
        for s in graph.seams
    )
    return _table(["seam", "extents", "equal forms", "in the chosen plan"], (_cells("td", cells) for cells in body))


def _stages(found: Study) -> str:
    columns = (f"<figure><figcaption>{view}</figcaption><pre>{escape(found.compiled.show(view))}</pre></figure>" for view in _SHOWN)
    return f'<div class="stages">{"".join(columns)}</div>'
