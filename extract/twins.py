"""Equal parts of a program: whether two parts of an e-graph differ in names only, and a kernel of one as a kernel of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.extract.body import computed, digest
from emmy_eq.extract.egraph import EGraph, Option
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.nest import Output
from emmy_eq.index import Idx
from emmy_eq.loop_ir.canonical import rename
from emmy_eq.ops import ops
from emmy_eq.terms import Axis, InputBuf, TempBuf, Val


@dataclass(slots=True)
class Twin:
    """One-to-one from one part to the other: classes, axes by id (in the same order), and input buffers by name."""

    classes: dict[int, int] = field(default_factory=dict)
    axes: dict[int, Axis] = field(default_factory=dict)
    inputs: dict[str, InputBuf] = field(default_factory=dict)


ROUNDS = 6  # how far down a rank looks


def ranks(graph: EGraph, leaves: frozenset[int]) -> list[bytes]:
    """By class, a digest of its options without names (Weisfeiler and Leman 1968): equal parts list theirs in different orders."""
    dtype = graph.sat.dtype
    rank = [digest(d) for d in dtype]
    for _ in range(ROUNDS):
        last = rank
        rank = [
            digest("leaf", dtype[c]) if c in leaves else digest(dtype[c], sorted(_key(o, last) for o in options))
            for c, options in enumerate(graph.options)
        ]
    return rank


def _key(o: Option, rank: Sequence[bytes]) -> bytes:
    attr = "" if o.op in ("load", "iota") else str(o.attr)
    return digest(o.op, attr, _ordered(o, rank), rank[o.stored] if o.stored >= 0 else b"")


def _ordered(o: Option, rank: Sequence[bytes]) -> list[bytes]:
    below = [rank[c] for c in o.children]
    return sorted(below) if o.op in ops() and ops()[o.op].commutative else below


def _sorted(graph: EGraph, c: int, rank: Sequence[bytes]) -> list[Option]:
    """The options of a class, and the operands of commutative ones, in an order that names do not decide."""
    found = sorted(graph.options[c], key=lambda o: _key(o, rank))
    swaps = [o.op in ops() and ops()[o.op].commutative for o in found]
    return [
        replace(o, children=tuple(sorted(o.children, key=lambda x: rank[x]))) if swap else o for o, swap in zip(found, swaps, strict=True)
    ]


def twin(graph: EGraph, first: int, second: int, leaves: frozenset[int], rank: Sequence[bytes]) -> Twin | None:
    """How the part from class ``first`` down to the classes ``leaves`` is that from ``second``; None where they differ.

    ``rank``: of `ranks`; it proposes what to match, and every match is checked.
    """
    found = Twin()
    queue = [(first, second)]
    for a, b in queue:
        if a in found.classes:
            if found.classes[a] != b:
                return None
            continue
        found.classes[a] = b
        inside = a == first
        if (a in leaves and not inside) != (b in leaves and b != second) or graph.sat.dtype[a] != graph.sat.dtype[b]:
            return None
        if not _masks(graph, found, graph.sat.free[a], graph.sat.free[b]):
            return None
        if a in leaves and not inside:
            continue
        if len(graph.options[a]) != len(graph.options[b]):
            return None
        for x, y in zip(_sorted(graph, a, rank), _sorted(graph, b, rank), strict=True):
            if not _alike(graph, found, x, y):
                return None
            queue += zip(x.children, y.children, strict=True)
            queue += [(x.stored, y.stored)] if x.stored >= 0 else []
    return found if _one_to_one(found) else None


def _one_to_one(t: Twin) -> bool:
    ids = [t.axes[a].id for a in sorted(t.axes)]
    different = len(set(t.classes.values())) == len(t.classes) and len({b.name for b in t.inputs.values()}) == len(t.inputs)
    return different and ids == sorted(set(ids))  # coordinates of a stored value stand in order of its axes


def _masks(graph: EGraph, t: Twin, a: int, b: int) -> bool:
    """Match the axes of two masks in order."""
    first, second = graph.sat.axes.of(a), graph.sat.axes.of(b)
    if [x.extent for x in first] != [y.extent for y in second]:
        return False
    return all(t.axes.setdefault(x.id, y) == y for x, y in zip(first, second, strict=True))


def _alike(graph: EGraph, t: Twin, a: Option, b: Option) -> bool:
    """Whether two options are the same apart from names; matches their axes and inputs, not their children."""
    if (a.op, len(a.children), a.stored < 0) != (b.op, len(b.children), b.stored < 0) or not _masks(graph, t, a.mask, b.mask):
        return False
    if a.op == "iota":
        return bool(_expression(graph, t, a.attr, a.mask) == b.attr)
    if a.op != "load":
        return bool(a.attr == b.attr)
    first, second = (a.attr, b.attr) if a.stored >= 0 else (a.attr[1], b.attr[1])
    if tuple(_expression(graph, t, x, a.mask) for x in first) != tuple(second):
        return False
    if a.stored >= 0:
        return True
    buf, other = a.attr[0], b.attr[0]
    return (buf.shape, buf.dtype) == (other.shape, other.dtype) and t.inputs.setdefault(buf.name, other) == other


def _expression(graph: EGraph, t: Twin, x: Idx, mask: int) -> Idx:
    return ix.substitute(x, {a.name: ix.var(t.axes[a.id].name) for a in graph.sat.axes.of(mask)})


def transferred(k: Planned, called: str, graph: EGraph, t: Twin, names: Mapping[str, str]) -> Planned:
    """Finished kernel ``k`` of the first part as one of the second; ``names`` of the buffers of stored classes."""
    buffers = {b.name: t.inputs[b.name].name if b.name in t.inputs else names[b.name] for b in (*k.loops.inputs, *k.loops.outputs)}
    made: dict[Val, Val] = {}
    outputs = tuple(Output(names[o.buffer], _val(o.val, graph, t, names, made), tuple(t.axes[a.id] for a in o.axes)) for o in k.outputs)
    return Planned(called, outputs, rename(k.loops, buffers, called), k.cost)


def _val(root: Val, graph: EGraph, t: Twin, names: Mapping[str, str], made: dict[Val, Val]) -> Val:
    axes = graph.sat.axes

    def moved(mask: int) -> int:
        return sum(t.axes[a.id].bit for a in axes.of(mask))

    for v in tm.topological([root]):
        args = tuple(made[a] for a in v.args)
        if v.op == "load":
            buf, idxs = v.attr
            to = t.inputs[buf.name] if isinstance(buf, InputBuf) else TempBuf(names[buf.name], moved(buf.mask), buf.dtype)
            new = tuple(_expression(graph, t, x, axes.mask(x)) for x in idxs)
            made[v] = tm.load(to, new, sum({a.bit for x in new for a in axes.of(axes.mask(x))}), args)
        elif v.op == "iota":
            idx = _expression(graph, t, v.attr, axes.mask(v.attr))
            made[v] = tm.iota(idx, axes.mask(idx))
        elif v.op == "lit":
            made[v] = v
        else:
            name, mask = v.attr if v.attr is not None else ("", 0)
            made[v] = computed(v.op, v.dtype, name, moved(mask), args)
    return made[root]
