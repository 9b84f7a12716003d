"""A plan's kernels and buffers as a graph, laid out in layers, as SVG."""

from __future__ import annotations

from html import escape
from math import prod

import networkx as nx

from emmy_eq.extract.front import Candidate
from emmy_eq.ops import itemsize
from emmy_eq.text import binary

_WIDTH, _HEIGHT = 150, 46  # of a node, in pixels
_GAP_X, _GAP_Y = 110, 22


def graph(plan: Candidate) -> nx.DiGraph:
    """Nodes are kernels and the buffers that enter or leave; a buffer between kernels is an edge.  Node data: kind, label, note."""
    g = nx.DiGraph()
    maker: dict[str, str] = {}
    for k in plan.kernels:
        node = f"kernel {k.name}"
        g.add_node(node, kind="kernel", label=k.name, note=f"{k.cost.seconds * 1e6:.2f} us, {k.cost.bound}")
        for b in k.loops.inputs:
            source = maker.get(b.name, f"buffer {b.name}")
            if b.name not in maker:
                g.add_node(source, kind="input", label=b.name, note=f"{b.dtype}{list(b.shape)}")
            g.add_edge(source, node, label=b.name if b.name in maker else "")
        maker |= {b.name: node for b in k.loops.outputs}
    read = {b.name for k in plan.kernels for b in k.loops.inputs}
    for k in plan.kernels:
        for b in k.loops.outputs:
            if b.name in read and b.name in plan.stored:
                continue
            g.add_node(f"result {b.name}", kind="result", label=b.name, note=f"{b.dtype}{list(b.shape)}")
            g.add_edge(f"kernel {k.name}", f"result {b.name}", label="")
    return g


def positions(g: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Pixels from the upper left: a column a layer, inputs beside their first reader, columns centred."""
    layers = {node: layer for layer, nodes in enumerate(nx.topological_generations(g)) for node in nodes}
    for node in g:
        if g.nodes[node]["kind"] == "input":
            layers[node] = min(layers[s] for s in g.successors(node)) - 1
    nx.set_node_attributes(g, layers, "layer")
    raw = nx.multipartite_layout(g, subset_key="layer")
    columns: dict[int, list[str]] = {}
    for node in sorted(g, key=lambda n: (layers[n], float(raw[n][1]), n)):
        columns.setdefault(layers[node], []).append(node)
    tallest = max(map(len, columns.values()))
    return {
        node: (layer * (_WIDTH + _GAP_X), (row + (tallest - len(nodes)) / 2) * (_HEIGHT + _GAP_Y))
        for layer, nodes in columns.items()
        for row, node in enumerate(nodes)
    }


def svg(plan: Candidate) -> str:
    """The graph as a picture; classes ``kernel``, ``input`` and ``result`` are for the page's style sheet."""
    g = graph(plan)
    at = positions(g)
    width = max(x for x, _ in at.values()) + _WIDTH
    height = max(y for _, y in at.values()) + _HEIGHT
    sizes = {b.name: binary(prod(b.shape) * itemsize(b.dtype)) for k in plan.kernels for b in k.loops.outputs}
    parts = [_edge(at[a], at[b], f"{label} {sizes.get(label, '')}" if (label := g.edges[a, b]["label"]) else "") for a, b in g.edges]
    parts += [_node(at[node], **{key: g.nodes[node][key] for key in ("kind", "label", "note")}) for node in g]
    box = f"-8 -14 {width + 16:.0f} {height + 28:.0f}"
    return f'<svg class="graph" viewBox="{box}" width="{width + 16:.0f}" role="img">{"".join(parts)}</svg>'


def _edge(a: tuple[float, float], b: tuple[float, float], label: str) -> str:
    x, y, u, v = a[0] + _WIDTH, a[1] + _HEIGHT / 2, b[0], b[1] + _HEIGHT / 2
    bend = max(_GAP_X / 2, (u - x) / 2)
    path = f'<path d="M{x:.0f},{y:.0f} C{x + bend:.0f},{y:.0f} {u - bend:.0f},{v:.0f} {u:.0f},{v:.0f}"/>'
    return path + (f'<text class="edge" x="{(x + u) / 2:.0f}" y="{(y + v) / 2 - 5:.0f}">{escape(label)}</text>' if label else "")


def _node(at: tuple[float, float], kind: str, label: str, note: str) -> str:
    x, y = at
    radius = 6 if kind == "kernel" else _HEIGHT / 2
    lines = "".join(
        f'<text class="{css}" x="{x + _WIDTH / 2:.0f}" y="{y + dy:.0f}">{escape(_short(t))}</text>'
        for css, dy, t in (("name", 20, label), ("note", 35, note))
    )
    title = f"<title>{escape(f'{label}: {note}')}</title>"
    return f'<g class="{kind}">{title}<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}"/>{lines}</g>'


def _short(text: str, most: int = 22) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
