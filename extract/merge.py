"""Merging kernels of a plan: those that walk the same axes and read the same data become one with several outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.extract.body import computed
from emmy_eq.extract.cost import Cost
from emmy_eq.extract.nest import Output, Unrealisable
from emmy_eq.index import Idx
from emmy_eq.loop_ir import Fold, Kernel, Loop, Stmt
from emmy_eq.terms import Axis, AxisTable, Val


@dataclass(frozen=True, slots=True)
class Planned:
    """One kernel of a plan: its outputs as terms, its Loop IR, its modelled cost."""

    name: str
    outputs: tuple[Output, ...]
    loops: Kernel
    cost: Cost


Make = Callable[[Sequence[Output]], Planned]  # a kernel with its cost; raises `Unrealisable`
Together = Callable[[Sequence[Output], Set[str]], Sequence[Output] | None]  # other terms for outputs, from the buffers named


def merge(
    kernels: Sequence[Planned], make: Make, together: Together, axes: AxisTable, results: frozenset[str], pinned: frozenset[str]
) -> list[Planned]:
    """``kernels`` (in launch order), where the pair that saves most modelled time is merged as long as one saves any.

    Buffers in ``results`` are stored in any case; those in ``pinned`` go through memory to all their readers.
    """
    current = list(kernels)
    tried: dict[tuple[int, int], Planned | None] = {}
    seen = list(kernels)  # keeps every kernel alive, so that its id is its own
    while True:
        best: tuple[float, Planned, Planned, Planned] | None = None
        for a, b in combinations(current, 2):
            if _between(a, b, current) or _reads(b) & _writes(a) & pinned:
                continue
            key = (id(a), id(b))
            if key not in tried:
                others = [k for k in current if k is not a and k is not b]
                tried[key] = _merged(a, b, make, together, axes, results.union(*map(_reads, others)))
            merged = tried[key]
            saved = a.cost.seconds + b.cost.seconds - merged.cost.seconds if merged is not None else 0.0
            if merged is not None and saved > (best[0] if best is not None else 1e-12):
                best = saved, a, b, merged
        if best is None:
            return current
        _, first, second, merged = best
        seen.append(merged)
        current = _in_order([merged, *(k for k in current if k is not first and k is not second)])


def _merged(a: Planned, b: Planned, make: Make, together: Together, axes: AxisTable, wanted: frozenset[str]) -> Planned | None:
    """One kernel for both, where their nests agree; ``a`` comes first in launch order.  ``wanted``: buffers that others read."""
    first, second = list(a.outputs), list(b.outputs)
    made = {o.buffer: o.val for o in first}
    if _reads(b) & made.keys():
        if not all(_pointwise(o.val, made, axes) for o in second):
            return None
        second = [Output(o.buffer, _rebuilt(o.val, axes, {}, made), o.axes) for o in second]
        first = [o for o in first if o.buffer in wanted]
    elif not _reads(a) & _reads(b):
        return None
    renamed = _renamed(first, second, axes) if first else second
    if renamed is None:
        return None
    forms = [[*first, *renamed]]
    if first and _reads(b) & made.keys() and (other := together(forms[0], _reads(a) | _reads(b))) is not None:
        forms.append([*other])
    return min(_possible(forms, make), key=lambda k: k.cost.seconds, default=None)


def _possible(forms: Sequence[Sequence[Output]], make: Make) -> Iterator[Planned]:
    for outputs in forms:
        try:
            merged = make(outputs)
        except Unrealisable:
            continue
        if _blocks_with_folds(merged.loops.body) < 2:
            yield merged


def _pointwise(root: Val, buffers: Mapping[str, Val], axes: AxisTable) -> bool:
    """Whether ``root`` reads ``buffers`` under their own axes only."""
    reads = [v for v in tm.topological([root]) if v.op == "load" and v.attr[0].name in buffers]
    return all(tm.is_pointwise(v, axes) for v in reads)


def _blocks_with_folds(body: Sequence[Stmt]) -> int:
    """How many loops have folds of their own: each would want tiles of its own, so a merged kernel has one at most."""
    inner = sum(_blocks_with_folds(s.body) for s in body if isinstance(s, Loop))
    return inner + any(isinstance(s, Fold) for s in body)


def _reads(k: Planned) -> set[str]:
    return {b.name for b in k.loops.inputs}


def _writes(k: Planned) -> set[str]:
    return {o.buffer for o in k.outputs}


def _between(a: Planned, b: Planned, kernels: Sequence[Planned]) -> bool:
    """Whether ``b`` needs, through a third kernel, what ``a`` makes."""
    tainted = _writes(a)
    for k in kernels[kernels.index(a) + 1 : kernels.index(b)]:
        if _reads(k) & tainted:
            tainted |= _writes(k)
    return bool(_reads(b) & (tainted - _writes(a)))


def _in_order(kernels: Sequence[Planned]) -> list[Planned]:
    """Producers first, otherwise as given."""
    out: list[Planned] = []
    left = list(kernels)
    while left:
        waiting = set().union(*map(_writes, left))
        k = next(k for k in left if not _reads(k) & waiting)
        left.remove(k)
        out.append(k)
    return out


def _renamed(first: Sequence[Output], second: Sequence[Output], axes: AxisTable) -> Sequence[Output] | None:
    """``second`` over the axes of ``first``, dim by dim where the widest outputs agree in shape; None where they do not fit."""
    wide, other = max(first, key=lambda o: len(o.axes)), max(second, key=lambda o: len(o.axes))
    if _within(wide, second) or _within(other, first):
        return second
    if [a.extent for a in wide.axes] != [a.extent for a in other.axes]:
        return None
    to = dict(zip(other.axes, wide.axes, strict=True))
    to = {old: new for old, new in to.items() if old != new}
    olds, news = reduce(or_, (a.bit for a in to), 0), reduce(or_, (a.bit for a in to.values()), 0)
    for v in tm.topological([o.val for o in second]):
        counts = v.op == "argreduce" and v.attr[1] & (v.attr[1] - 1)  # in the order of its axes' ids, which may become another
        if _names(v, axes) & (news | (olds if counts else 0)):
            return None
    return [Output(o.buffer, _rebuilt(o.val, axes, to, {}), tuple(to.get(a, a) for a in o.axes)) for o in second]


def _within(wide: Output, others: Sequence[Output]) -> bool:
    return all(not o.mask & ~wide.mask for o in others)


def _names(v: Val, axes: AxisTable) -> int:
    """Axes that ``v`` itself names."""
    if v.op == "load":
        return _axes(v.attr[1], axes)
    if v.op == "iota":
        return axes.mask(v.attr)
    return v.attr[1] if v.op in ("reduce", "argreduce", "scan", "twist") else 0


def _rebuilt(root: Val, axes: AxisTable, to: Mapping[Axis, Axis], made: Mapping[str, Val]) -> Val:
    """``root`` with axes renamed (the new ones are not used in it), and with reads of the buffers ``made`` replaced."""
    names = {old.name: ix.var(new.name) for old, new in to.items()}
    bits = {old.bit: new.bit for old, new in to.items()}
    out: dict[Val, Val] = {}
    for v in tm.topological([root]):
        args = tuple(out[a] for a in v.args)
        if v.op == "load" and v.attr[0].name in made:
            out[v] = made[v.attr[0].name]
        elif v.op == "load":
            idxs = tuple(ix.substitute(x, names) for x in v.attr[1])
            out[v] = tm.load(v.attr[0], idxs, _axes(idxs, axes), args)
        elif v.op == "iota":
            idx = ix.substitute(v.attr, names)
            out[v] = tm.iota(idx, axes.mask(idx))
        elif v.op == "lit":
            out[v] = v
        else:
            name, mask = v.attr if v.attr is not None else ("", 0)
            # Bound ones too: the row of a norm is folded and walked under one name.
            renamed = sum(bits.get(a.bit, a.bit) for a in axes.of(mask))
            out[v] = computed(v.op, v.dtype, name, renamed, args)
    return out[root]


def _axes(idxs: Sequence[Idx], axes: AxisTable) -> int:
    return reduce(or_, map(axes.mask, idxs), 0)
