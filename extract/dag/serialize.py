"""The field's ``egraph-serialize`` JSON, plain or gzipped: ``{nodes: {id: {op, children, eclass, cost, subsumed}}, root_eclasses}``.

Children are node ids and stand for the class of that node.  A subsumed node may be named as a child but is never chosen, as in
egglog.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.dag.egraph import EGraph, from_rows


@dataclass(frozen=True, slots=True)
class Serialized:
    """A file's content; node n and class c of ``graph`` are those of ``ids[n]`` and ``classes[c]``."""

    document: dict[str, Any]
    ids: tuple[str, ...]
    classes: tuple[str, ...]
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
    raw = json.dumps(serialized.document, indent=1).encode()
    Path(path).write_bytes(gzip.compress(raw, mtime=0) if str(path).endswith(".gz") else raw)


def parse(document: object, where: str) -> Serialized:
    """A decoded JSON document, checked."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict) or not isinstance(document.get("root_eclasses"), list):
        raise InvalidInput(where, "an e-graph is an object with `nodes` (an object) and `root_eclasses` (a list)")
    entries, roots = document["nodes"], tuple(map(str, document["root_eclasses"]))
    if not entries or not roots:
        raise InvalidInput(where, "it has no nodes" if not entries else "it has no root_eclasses")
    for name, entry in entries.items():
        fault = _fault(entry)
        if fault:
            raise InvalidInput(where, f"{fault[0]} node {name!r} {fault[1]}".strip())
    number: dict[str, int] = {}
    class_of = {name: number.setdefault(str(entry["eclass"]), len(number)) for name, entry in entries.items()}
    unknown = next((root for root in roots if root not in number), None)
    if unknown is not None:
        raise InvalidInput(where, f"root class {unknown!r} has no nodes")
    rows = []
    for name, entry in entries.items():
        try:
            kids = [class_of[child] for child in entry.get("children", ())]
        except (KeyError, TypeError) as error:
            child = next(c for c in entry["children"] if not isinstance(c, str) or c not in class_of)
            raise InvalidInput(where, f"child {child!r} of node {name!r} is not a node") from error
        rows.append((-1 if entry.get("subsumed") is True else class_of[name], float(entry.get("cost", 1.0)), kids))
    graph = from_rows(rows, (number[root] for root in roots), len(number))
    return Serialized(document, tuple(entries), tuple(number), graph)


def _fault(entry: object) -> tuple[str, str] | None:
    """What stands before and behind a node's name in the message about it."""
    if not isinstance(entry, dict):
        return "", "is not an object"
    if not isinstance(entry.get("children", []), list):
        return "the children of", "are not a list of node ids"
    eclass, cost = entry.get("eclass"), entry.get("cost", 1.0)
    if not isinstance(eclass, str | int) or isinstance(eclass, bool):
        return "", "has no eclass"
    if (
        not isinstance(cost, int | float)
        or isinstance(cost, bool)
        or not cost >= 0
        or (isinstance(cost, int) and cost > sys.float_info.max)
    ):
        return "the cost of", f"is {cost!r}; a cost is a number, at least 0 (Infinity: never chosen)"
    return None
