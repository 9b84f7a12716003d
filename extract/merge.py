"""Merging kernels of a plan: those that walk the same axes and read the same data become one with several outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush
from operator import or_

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.extract.cost import Cost
from emmy_eq.extract.nest import Output, Unrealisable
from emmy_eq.index import Idx
from emmy_eq.loop_ir import Fold, Kernel, Loop, Stmt
from emmy_eq.terms import Axis, AxisTable, Val


@dataclass(frozen=True, slots=True)
class Planned:
    """One kernel of a plan: its outputs as terms, its Loop IR, its modelled cost; ``identity``: as `emmy_eq.loop_ir.identity`, where
    measured times are asked for."""

    name: str
    outputs: tuple[Output, ...]
    loops: Kernel
    cost: Cost
    identity: str = ""


MANY = 8  # kernels alike: so many are not merged pair by pair
NEAR = 16  # partners in launch order that a kernel is tried with: programs of hundreds of kernels have too many pairs
Make = Callable[[Sequence[Output]], Planned]  # a kernel with its cost; raises `Unrealisable`
Together = Callable[[Sequence[Output], Set[str]], Sequence[Output] | None]  # other terms for outputs, from the buffers named


def merge(
    kernels: Sequence[Planned],
    make: Make,
    together: Together,
    axes: AxisTable,
    results: frozenset[str],
    pinned: frozenset[str],
    expired: Callable[[], bool],
) -> list[Planned]:
    """``kernels`` (in launch order), where the pair that saves most modelled time is merged as long as one saves any.

    Buffers in ``results`` are stored in any case; those in ``pinned`` go through memory to all their readers.  What is merged
    when ``expired`` says so is returned.
    """
    current = _at_once(kernels, make, axes)
    tried: dict[tuple[int, int], Planned | None] = {}
    seen = list(current)  # keeps every kernel alive, so that its id is its own
    while True:
        best: tuple[float, Planned, Planned, Planned] | None = None
        for a, b in _pairs(current):
            if _reads(b) & _writes(a) & pinned:
                continue
            key = (id(a), id(b))
            if key not in tried:
                if expired():
                    return current
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


def _at_once(kernels: Sequence[Planned], make: Make, axes: AxisTable) -> list[Planned]:
    """``kernels``, those that read the same data and are `MANY` merged in one step: none of them needs another."""
    alike: dict[frozenset[str], list[Planned]] = {}
    for k in kernels:
        alike.setdefault(frozenset(_reads(k)), []).append(k)
    current = list(kernels)
    for group in alike.values():
        first = group[0].outputs
        renamed = [_renamed(first, k.outputs, axes) for k in group[1:]] if len(group) >= MANY else [None]
        outputs = [*first, *(o for r in renamed if r is not None for o in r)]
        merged = next(_possible([outputs], make), None) if None not in renamed else None
        if merged is not None and merged.cost.seconds < sum(k.cost.seconds for k in group):
            current = _in_order([merged, *(k for k in current if all(k is not x for x in group))])
    return current


def _pairs(kernels: Sequence[Planned]) -> Iterator[tuple[Planned, Planned]]:
    """In launch order, kernels that read the same data or of which the second reads what the first makes, and nothing that
    a third makes of it; each with the `NEAR` next ones."""
    reads = [_reads(k) for k in kernels]
    maker = {buffer: n for n, k in enumerate(kernels) for buffer in _writes(k)}
    readers: dict[str, list[int]] = {}
    needs: list[int] = []  # the kernels that each needs through any number of others, as bits
    for n, found in enumerate(reads):
        makers = [maker[buffer] for buffer in found if buffer in maker]
        needs.append(reduce(or_, (needs[m] | 1 << m for m in makers), 0))
        for buffer in found:
            readers.setdefault(buffer, []).append(n)
    for n, k in enumerate(kernels):
        partners = {m for buffer in reads[n] | _writes(k) for m in readers.get(buffer, ()) if m > n}
        for m in sorted(partners)[:NEAR]:
            if not any(needs[maker[buffer]] >> n & 1 for buffer in reads[m] if buffer in maker):
                yield k, kernels[m]


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
    if first and _reads(b) & made.keys() and (other := together(forms[0], _reads(a) | _reads(b) - made.keys())) is not None:
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


def _in_order(kernels: Sequence[Planned]) -> list[Planned]:
    """Producers first, otherwise as given."""
    maker = {buffer: n for n, k in enumerate(kernels) for buffer in _writes(k)}
    waits = [{maker[buffer] for buffer in _reads(k) if buffer in maker} for k in kernels]
    users: dict[int, list[int]] = {}
    for n, found in enumerate(waits):
        for m in found:
            users.setdefault(m, []).append(n)
    ready = [n for n, found in enumerate(waits) if not found]  # ascending, so a heap
    out: list[Planned] = []
    while ready:
        n = heappop(ready)
        out.append(kernels[n])
        for user in users.get(n, ()):
            waits[user].discard(n)
            if not waits[user]:
                heappush(ready, user)
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
        ordered = tm.is_ordered(v) and v.attr[1] & (v.attr[1] - 1)  # by its axes' ids, whose order may become another
        if _names(v, axes) & (news | (olds if ordered else 0)):
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
            out[v] = tm.computed(v.op, v.dtype, name, renamed, args)
    return out[root]


def _axes(idxs: Sequence[Idx], axes: AxisTable) -> int:
    return reduce(or_, map(axes.mask, idxs), 0)
