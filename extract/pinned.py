"""Values pinned by name: ``cut`` (what uses it reads it from memory) or ``fuse`` (what uses it computes it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.egraph import EGraph, Option

Place = Mapping[str, str] | str


def stated(place: Place) -> Mapping[str, str]:
    """Name -> ``fuse`` or ``cut``, of a mapping or of ``SEAM=fuse,SEAM=cut,...``; none for ``auto``, ``fuse`` and ``cut``."""
    if place in ("auto", "fuse", "cut"):
        return {}
    if isinstance(place, str):
        place = dict(_pin(item) for item in place.split(",") if item.strip())
    for name, value in place.items():
        if value not in ("fuse", "cut"):
            raise InvalidInput(f"place {name}={value}", "a seam is pinned to fuse or cut")
    return place


def _pin(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals:
        raise InvalidInput(f"place {item.strip()!r}", "it is auto, fuse, cut, or SEAM=fuse,SEAM=cut,...")
    return name.strip(), value.strip()


def classes(graph: EGraph, buffers: Mapping[int, str], place: Place) -> dict[int, str]:
    """Class -> ``fuse`` or ``cut``."""
    names = {seam.name: seam.cls for seam in graph.sat.seams} | made_by_rules(graph, buffers)
    found: dict[int, str] = {}
    for name, value in stated(place).items():
        c = names.get(name, -1)
        if c < 0:
            raise InvalidInput(f"place {name!r}", f"the seams are {', '.join(names)}")
        if found.setdefault(c, value) != value:
            raise InvalidInput(f"place {name}={value}", "another name of the same value is pinned otherwise")
    return found


def made_by_rules(graph: EGraph, buffers: Mapping[int, str]) -> dict[str, int]:
    """Name -> class of the values beside the seams that may be stored, which no tensor of the source program is."""
    others = {seam.name for seam in graph.sat.seams} | {r.name for r in graph.sat.results}
    return {name: c for c, name in sorted(buffers.items(), key=lambda item: item[1]) if name not in others}


def honoured(graph: EGraph, pinned: Mapping[int, str]) -> list[list[Option]]:
    """The options by class, less those that a pin rules out.

    What the source program computes from a value pinned to ``cut`` is made of it, and so is what rules made: not of a twist that
    computes it on the way, nor of a form without it.  Nothing that is read from memory under other indices is pinned to ``fuse``.
    """
    below = [[(*o.children, *((o.stored,) if o.stored >= 0 else ())) for o in found] for found in graph.options]
    down = [sorted({x for children in found for x in children}) for found in below]
    up = _reversed(down)
    source: list[list[int]] = [[] for _ in down]
    for seam in graph.sat.seams:
        source[seam.cls] += seam.made_of
    tensors = {seam.cls for seam in graph.sat.seams}
    users = _reversed(source)
    allowed = [[pinned.get(o.stored) != "fuse" for o in found] for found in graph.options]
    for cut in (c for c, value in pinned.items() if value == "cut"):
        above = _reached(cut, up)
        bound = above - _reached(cut, down)  # what it is made of itself (a cast back) need not be made of it
        bound -= tensors - _reached(cut, users) if cut in tensors else set()
        for c in bound:
            allowed[c] = [a and not above.isdisjoint(children) for a, children in zip(allowed[c], below[c], strict=True)]
    return [[o for o, a in zip(found, kept, strict=True) if a] for found, kept in zip(graph.options, allowed, strict=True)]


def _reversed(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in edges]
    for c, targets in enumerate(edges):
        for x in targets:
            found[x].append(c)
    return found


def _reached(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    """``start`` and what ``edges`` lead to."""
    found = {start}
    queue = [start]
    for c in queue:
        new = set(edges[c]) - found
        found |= new
        queue += sorted(new)
    return found
