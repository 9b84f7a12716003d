"""The field's ``egraph-serialize`` JSON, plain or gzipped: ``{nodes: {id: {op, children, eclass, cost, subsumed}}, root_eclasses}``.

Children are node ids and stand for the class of that node.  A subsumed node may be named as a child but is never chosen, as in
egglog.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.dag.egraph import EGraph, from_rows


@dataclass(frozen=True, slots=True)
class SerialNode:
    id: str
    op: str
    children: tuple[str, ...]
    eclass: str
    cost: float
    subsumed: bool


@dataclass(frozen=True, slots=True)
class Serialized:
    """A file's content; node n and class c of ``graph`` are ``nodes[n]`` and ``classes[c]``."""

    nodes: tuple[SerialNode, ...]
    classes: tuple[str, ...]
    root_eclasses: tuple[str, ...]
    class_data: dict[str, Any]
    graph: EGraph


def read(path: str | Path) -> Serialized:
    """The e-graph in a file; InvalidInput says what is wrong with it and where."""
    source = Path(path)
    try:
        raw = source.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"it cannot be read as text: {error}") from error
    if not text.strip():
        raise InvalidInput(str(path), "the file is empty")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"it is not JSON: {error}") from error
    return parse(document, str(path))


def write(serialized: Serialized, path: str | Path) -> None:
    """The same content as a file, gzipped where the name ends in ``.gz``; equal content gives equal bytes."""
    nodes = {
        n.id: {"op": n.op, "children": list(n.children), "eclass": n.eclass, "cost": n.cost} | ({"subsumed": True} if n.subsumed else {})
        for n in serialized.nodes
    }
    document = {"nodes": nodes, "root_eclasses": list(serialized.root_eclasses), "class_data": serialized.class_data}
    raw = json.dumps(document, indent=1).encode()
    Path(path).write_bytes(gzip.compress(raw, mtime=0) if str(path).endswith(".gz") else raw)


def parse(document: object, where: str) -> Serialized:
    """A decoded JSON document, checked."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict) or not isinstance(document.get("root_eclasses"), list):
        raise InvalidInput(where, "an e-graph is an object with `nodes` (an object) and `root_eclasses` (a list)")
    nodes = tuple(_node(name, entry, where) for name, entry in document["nodes"].items())
    roots = tuple(map(str, document["root_eclasses"]))
    if not nodes or not roots:
        raise InvalidInput(where, "it has no nodes" if not nodes else "it has no root_eclasses")
    number = {name: n for n, name in enumerate(dict.fromkeys(node.eclass for node in nodes))}
    class_of = {node.id: number[node.eclass] for node in nodes}
    for node in nodes:
        missing = next((child for child in node.children if child not in class_of), None)
        if missing is not None:
            raise InvalidInput(where, f"child {missing!r} of node {node.id!r} is not a node")
    unknown = next((root for root in roots if root not in number), None)
    if unknown is not None:
        raise InvalidInput(where, f"root class {unknown!r} has no nodes")
    rows = [(-1 if n.subsumed else class_of[n.id], n.cost, [class_of[child] for child in n.children]) for n in nodes]
    graph = from_rows(rows, (number[root] for root in roots), len(number))
    class_data = document.get("class_data")
    return Serialized(nodes, tuple(number), roots, class_data if isinstance(class_data, dict) else {}, graph)


def _node(name: str, entry: object, where: str) -> SerialNode:
    if not isinstance(entry, dict):
        raise InvalidInput(where, f"node {name!r} is not an object")
    children, eclass, cost = entry.get("children", []), entry.get("eclass"), entry.get("cost", 1.0)
    if not isinstance(children, list) or not all(isinstance(child, str) for child in children):
        raise InvalidInput(where, f"the children of node {name!r} are not a list of node ids")
    if not isinstance(eclass, str | int) or isinstance(eclass, bool):
        raise InvalidInput(where, f"node {name!r} has no eclass")
    if not isinstance(cost, int | float) or isinstance(cost, bool) or math.isnan(cost) or cost < 0:
        raise InvalidInput(where, f"the cost of node {name!r} is {cost!r}; a cost is a number, at least 0 (Infinity: never chosen)")
    return SerialNode(name, str(entry.get("op", "")), tuple(children), str(eclass), float(cost), entry.get("subsumed") is True)
