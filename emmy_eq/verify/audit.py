"""L6: all members of every class of a saturated e-graph are the same function, modulo primes.

Inputs are keyed hashes of their coordinates, so no buffer is made, whatever its shape.  Axes are sampled at a few
positions.  A renamed read evaluates the stored value anew, at the coordinates that the reader asks for.  Members are
compared children first, each computed from its children's first members: the first class that disagrees names the
culprit, since everything below it agrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy_eq import index as ix
from emmy_eq import named, ops, terms
from emmy_eq.egraph import ENode, Saturated
from emmy_eq.index import Idx
from emmy_eq.readback import by_depth
from emmy_eq.verify import field
from emmy_eq.verify.field import Parts, Residue
from emmy_eq.verify.space import AxisSet, Space, bits, key_of, mix


@dataclass(frozen=True, slots=True)
class Culprit:
    """A class whose children's members agree and whose own members do not: some rule that joined it is wrong."""

    cls: int
    first: str
    second: str

    def __str__(self) -> str:
        return f"class {self.cls}: {self.first} differs from {self.second}"


def audit(saturated: Saturated, samples: int = 2, key: int = 0) -> Culprit | None:
    """The first culprit, or None where all classes hold; ``key`` draws the inputs' values and every keyed function."""
    space = _space(saturated, samples, key)
    first = shallowest(saturated)
    here = _Evaluator(saturated, space, first, space.positions(), {})
    for cls, chosen in first.items():
        expected = here.value(cls)
        if (axis := expected.varies_along(~saturated.free[cls])) is not None:
            return Culprit(cls, show(saturated, chosen), f"a value that does not depend on axis {saturated.axes.axes[axis].name}")
        for node in saturated.classes[cls]:
            if node is chosen or expected.agrees(here.node(node, saturated.dtype[cls])):
                continue
            if _hashed(saturated, first, chosen) == _hashed(saturated, first, node):  # else the field says nothing
                return Culprit(cls, show(saturated, chosen), show(saturated, node))
    return None


def _space(saturated: Saturated, samples: int, key: int) -> Space:
    literals = {terms.from_bits(t, n.attr) for t, c in zip(saturated.dtype, saturated.classes, strict=True) for n in c if n.op == "lit"}
    numbers = frozenset(float(x) for x in literals if np.isfinite(x))
    return Space.sampled([a.extent for a in saturated.axes.axes], samples, key, numbers)


def _hashed(saturated: Saturated, first: Mapping[int, ENode], node: ENode) -> set[int]:
    """The classes whose logarithm or greatest magnitude the term of ``node`` takes: hashes, which know neither sums nor products."""
    seen, queue = set[int](), [node]
    found = set[int]()
    for n in queue:
        if ops.exact(n.op) == "log" or (
            n.op == "reduce" and n.attr[0] == "max" and any(m.op == "abs" for m in saturated.classes[n.children[0]])
        ):
            found.update(n.children)
        new = set(n.children) - seen
        seen |= new
        queue += [first[c] for c in sorted(new)]
    return found


def shallowest(saturated: Saturated) -> dict[int, ENode]:
    """A member of every class, by which its terms end; children first."""
    first: dict[int, ENode] = {}
    for layer in by_depth(dict(enumerate(saturated.classes))):
        for cls, node in layer:
            first.setdefault(cls, node)
    return first


def fingerprints(saturated: Saturated, samples: int = 3, key: int = 0) -> dict[int, bytes]:
    """By class of a float dtype: its values modulo the first prime.  Equal ones are equal functions, but for a chance of 2^-58 or so."""
    space = _space(saturated, samples, key)
    first = shallowest(saturated)
    here = _Evaluator(saturated, space, first, space.positions(), {})
    out = {}
    for cls in first:
        if saturated.dtype[cls] in ops.FLOATS:
            values = here.value(cls).parts[0]
            for dim in range(values.ndim):  # what does not vary along an axis is the same with the axis and without it
                if values.shape[dim] and np.all(values == np.take(values, [0], dim)):
                    values = np.take(values, [0], dim)
            out[cls] = f"{saturated.dtype[cls]} {values.shape} ".encode() + values.astype(np.uint64).tobytes()
    return out


def show(saturated: Saturated, node: ENode, depth: int = 2) -> str:
    """A member, with its children spelled by their first members down to ``depth``."""
    if depth < 0:
        return "..."
    children = ", ".join(show(saturated, saturated.classes[c][0], depth - 1) for c in node.children)
    attr = node.attr
    if node.op == "load":
        buf, *rest = attr
        name = "stored" if buf == "stored" else buf.name
        attr = f"{name}[{', '.join(map(ix.show, rest[-1]))}]"
    return f"{node.op}{'' if attr is None else f'[{attr}]'}({children})"


class _Evaluator:
    """Values of classes where axis a has the coordinates ``at[a]``; renamed reads and bound axes make evaluators of their own."""

    def __init__(
        self, saturated: Saturated, space: Space, first: Mapping[int, ENode], at: dict[int, Any], others: dict[Any, _Evaluator]
    ) -> None:
        self.saturated = saturated
        self.space = space
        self.first = first
        self.at = at
        self.known: dict[int, Residue] = {}
        self.others = others  # by coordinates, shared by all

    def value(self, cls: int) -> Residue:
        """The class's value through its shallowest term, so that it ends."""
        pending = [cls]
        while pending:
            node = self.first[pending[-1]]
            missing = [c for c in self.direct(node) if c not in self.known]
            if missing:
                pending += missing
                continue
            done = pending.pop()
            if done not in self.known:
                self.known[done] = self.node(node, self.saturated.dtype[done])
        return self.known[cls]

    def direct(self, node: ENode) -> tuple[int, ...]:
        """The children that ``node`` needs at these same coordinates."""
        if node.op in _BINDERS:
            return ()
        return node.children[:-1] if node.op == "load" and node.attr[0] == "stored" else node.children

    def node(self, node: ENode, dtype: str) -> Residue:
        """``node`` from its children's classes."""
        if node.op == "lit":
            return self.residue(field.constant(dtype, node.attr, self.space), dtype)
        if node.op == "iota":
            return self.residue((self.index(node.attr, []),), dtype)
        if node.op in _BINDERS:
            return self.bind(node)
        args = [self.value(c) for c in self.direct(node)]
        if node.op == "load":
            return self.load(node, [a.parts[0] for a in args], dtype)
        if node.op in _FOLDED and (found := self.folded(node, dtype)) is not None:
            return self.residue(field.constant(dtype, terms.to_bits(dtype, found), self.space), dtype)
        return args[0].cast(dtype) if node.op == "cast" else args[0].call(node.op, *args[1:])

    def folded(self, node: ENode, dtype: str) -> Any:
        """What ``node`` gives for a literal, as `emmy_eq.fold` folds it: the field's magnitudes, roots and casts know no numbers."""
        (child,) = node.children
        literal, own = next((n for n in self.saturated.classes[child] if n.op == "lit"), None), self.saturated.dtype[child]
        if literal is None:
            return None
        value = terms.from_bits(own, literal.attr)
        if node.op == "cast":  # the field knows floats of any dtype, but not which numbers are whole
            return None if dtype in ops.FLOATS else named.cast(named.scalar(value, own), dtype).array
        with np.errstate(all="ignore"):
            found = ops.ops()[node.op].numpy(value)
        return None if node.op == "sqrt" and found * found != value else found

    def residue(self, parts: Parts, dtype: str) -> Residue:
        return Residue(parts, dtype, 0, self.space)

    def index(self, idx: Idx, gathered: Sequence[Any]) -> Any:
        env = {a.name: self.at[a.id] for a in self.saturated.axes.axes} | {f"g{n}": g for n, g in enumerate(gathered)}
        return np.asarray(ix.evaluate(idx, env), np.int64) + self.space.origin()

    def load(self, node: ENode, gathered: list[Any], dtype: str) -> Residue:
        buf, *rest = node.attr
        where = [self.index(i, gathered) for i in rest[-1]]
        if buf != "stored":
            point = self.space.origin().astype(np.uint64)
            for dim, x in enumerate(where):
                point = mix(point + x.astype(np.uint64), key_of(f"{buf.name}.{dim}", self.space.key))
            return self.residue(field.hashed(dtype, point, key_of(buf.name, self.space.key)), dtype)
        stored, axes = node.children[-1], tuple(bits(rest[0]))
        if all(i == ix.var(self.saturated.axes.axes[a].name) for a, i in zip(axes, rest[1], strict=True)):
            return self.value(stored)
        shape = np.broadcast_shapes(*(x.shape for x in where))
        points = np.stack([np.broadcast_to(x, shape).reshape(-1) for x in where])
        distinct, which = np.unique(points, axis=1, return_inverse=True)  # without this, nested reads multiply their points
        column = (-1, *[1] * (self.space.rank - 1))
        there = self.elsewhere({a: x.reshape(column) for a, x in zip(axes, distinct, strict=True)})
        parts = (np.broadcast_to(p, (distinct.shape[1], *p.shape[1:])) for p in there.value(stored).parts)
        return self.residue(tuple(p[which.reshape(-1)].reshape(shape) for p in parts), dtype)

    def elsewhere(self, at: dict[int, Any]) -> _Evaluator:
        """The evaluator with other coordinates for some axes; the rest are at their samples."""
        key = tuple((a, x.shape, x.tobytes()) for a, x in sorted(at.items()))
        if key not in self.others:
            self.others[key] = _Evaluator(self.saturated, self.space, self.first, self.space.positions() | at, self.others)
        return self.others[key]

    def bound(self, mask: int) -> _Evaluator:
        """The evaluator with the axes of ``mask`` at their samples."""
        own = self.space.positions()
        if all(np.array_equal(self.at[a], own[a]) for a in bits(mask)):
            return self
        return self.elsewhere({a: x for a, x in self.at.items() if not mask >> a & 1 and not np.array_equal(x, own[a])})

    def bind(self, node: ENode) -> Residue:
        name, mask = node.attr
        k = AxisSet(mask, self.space.extents)
        inner = self.bound(mask)
        args = [inner.value(c) for c in node.children]
        if node.op == "reduce":
            return args[0].reduce(name, k)
        if node.op == "twist":
            return args[0].twist(name, args[1], k)
        if node.op == "argreduce":
            return args[0].argreduce(name, k)
        (axis,) = bits(mask)
        found = args[0].scan(name, k) if len(args) == 1 else args[0].running(name, args[1], k)
        return found.pick(axis, self.at[axis])


_FOLDED = frozenset({"abs", "sqrt", "cast"})
_BINDERS = frozenset({"reduce", "argreduce", "scan", "twist"})
