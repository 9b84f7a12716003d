"""What a fold carries, as operations on fragments: how elements enter a state, and how two partial states become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from emmy_eq.algebra import Scalar
from emmy_eq.codegen.kernel_ir import Lit
from emmy_eq.codegen.lower import powers
from emmy_eq.codegen.lower.builder import Builder, literal
from emmy_eq.codegen.lower.layout import Fragment, scalar
from emmy_eq.errors import Unsupported
from emmy_eq.loop_ir import Carry
from emmy_eq.ops import FLOATS, Best, Monoid, Twist, bests, exact, monoids, ops, twists

Parts = tuple[Fragment, ...]  # a state: one fragment a component


class State(ABC):
    """One carry.  ``dtypes``: of its components, of which the last ``len(results)`` are the carry's results."""

    dtypes: tuple[str, ...]

    @abstractmethod
    def identity(self) -> tuple[Lit, ...]:
        """The state of no elements."""

    @abstractmethod
    def merge(self, b: Builder, x: Parts, y: Parts) -> Parts:
        """The state of all that ``x`` saw, then all that ``y`` saw."""

    @abstractmethod
    def collect(self, b: Builder, acc: Parts | None, items: Sequence[Parts]) -> Parts:
        """``acc`` (None: nothing yet) with elements added; an item is the carry's arguments at one element."""

    def mask(self) -> Lit:
        """What the first argument of an element outside the fold's extent is replaced by."""
        return self.identity()[0]

    def results(self, b: Builder, parts: Parts) -> Parts:
        """The components of a state as others read them."""
        return parts


def tree(b: Builder, state: State, parts: Sequence[Parts]) -> Parts:
    """Merge neighbours pairwise: short chains, small rounding errors."""
    level = list(parts)
    while len(level) > 1:
        pairs = [state.merge(b, level[n], level[n + 1]) for n in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


@dataclass(frozen=True, slots=True)
class Reduction(State):
    """A monoid; ``product``: elements are pairs whose products are summed by fma."""

    monoid: Monoid
    dtypes: tuple[str, ...]
    product: bool = False

    def identity(self) -> tuple[Lit, ...]:
        return (literal(self.dtypes[0], self.monoid.identity(self.dtypes[0])),)

    def merge(self, b: Builder, x: Parts, y: Parts) -> Parts:
        return (b.apply(self.monoid.combine, self.dtypes[0], x[0], y[0]),)

    def collect(self, b: Builder, acc: Parts | None, items: Sequence[Parts]) -> Parts:
        if self.monoid.serial:
            return reduce(lambda x, y: self.merge(b, x, y), items if acc is None else [acc, *items])
        if not self.product:
            total = tree(b, self, items)
            return total if acc is None else self.merge(b, acc, total)
        for left, right in items:
            acc = (b.apply("mul", self.dtypes[0], left, right) if acc is None else b.apply("fma", self.dtypes[0], left, right, acc[0]),)
        assert acc is not None
        return acc


@dataclass(frozen=True, slots=True)
class ArgReduction(State):
    """(value, position) of the best element."""

    best: Best
    dtypes: tuple[str, ...]

    def identity(self) -> tuple[Lit, ...]:
        return literal(self.dtypes[0], monoids()[self.best.key].identity(self.dtypes[0])), literal("i64", 2**63 - 1)

    def merge(self, b: Builder, x: Parts, y: Parts) -> Parts:
        (value, at), (other, there) = ([Expression(b, p) for p in parts] for parts in (x, y))
        take = self.best.takes(value, at, other, there, self.dtypes[0] in FLOATS).frag
        return b.apply("where", self.dtypes[0], take, x[0], y[0]), b.apply("where", "i64", take, x[1], y[1])

    def collect(self, b: Builder, acc: Parts | None, items: Sequence[Parts]) -> Parts:
        return tree(b, self, items if acc is None else [acc, *items])


@dataclass(frozen=True, slots=True)
class Twisted(State):
    """(key, sum1, ...): each sum is of weight(s, key) * v, and is rescaled when the key changes.

    The key's identity stands for "nothing seen": its weight and rescale are 0, whatever the functions give there
    (exp(-inf - -inf) is NaN).  So a partly masked row is right, and a wholly masked one has sums 0.

    ``rounded``: the weights of some sum, to 16 bits.  ``scale``: elements and key are given and kept without this factor.
    """

    twist: Twist
    dtypes: tuple[str, ...]
    rounded: bool = False
    scale: float = 1.0

    @property
    def key(self) -> Monoid:
        return monoids()[self.twist.key]

    @property
    def powers(self) -> bool:
        """Whether weights are the hardware's powers of two."""
        return self.rounded and self.twist.exponential and self.dtypes[0] == "f32"

    def identity(self) -> tuple[Lit, ...]:
        first = literal(self.dtypes[0], self.twist.nothing(self.dtypes[0]))
        return first, *(literal(d, 0) for d in self.dtypes[1:])

    def results(self, b: Builder, parts: Parts) -> Parts:
        if self.scale == 1:
            return parts
        dtype = self.dtypes[0]
        return b.apply("mul", dtype, parts[0], scalar(literal(dtype, self.scale), dtype)), *parts[1:]

    def weights(self, b: Builder, elements: Sequence[Fragment], key: Fragment, own: Fragment) -> list[Fragment]:
        """Of elements, whose key is ``own``, under ``key``, with 1 in place of a key that saw nothing: under any other, what does not count
        weighs 0."""
        dtype = self.dtypes[0]
        nothing = b.apply("eq", "bool", key, scalar(self.identity()[0], dtype))
        under = b.apply("where", dtype, nothing, scalar(literal(dtype, 1), dtype), key)
        if self.powers:
            return powers.weights(b, elements, under, own, self.scale)
        return [self.twist.weight(Expression(b, s), Expression(b, under)).frag for s in elements]

    def rescale(self, b: Builder, old: Fragment, new: Fragment) -> Fragment:
        base = powers.base(self.scale) if self.powers else None
        return self.twist.rescaled(Expression(b, old, base), Expression(b, new, base)).frag  # type: ignore[no-any-return]

    def grow(self, b: Builder, keys: Sequence[Fragment]) -> Fragment:
        """The key of several elements or states."""
        joined = Reduction(self.key, self.dtypes[:1])
        return tree(b, joined, [(key,) for key in keys])[0]

    def merge(self, b: Builder, x: Parts, y: Parts) -> Parts:
        key = self.grow(b, [x[0], y[0]])
        left, right = self.rescale(b, x[0], key), self.rescale(b, y[0], key)
        sums = [
            b.apply("add", d, b.apply("mul", d, p, left), b.apply("mul", d, q, right))
            for p, q, d in zip(x[1:], y[1:], self.dtypes[1:], strict=True)
        ]
        return key, *sums

    def collect(self, b: Builder, acc: Parts | None, items: Sequence[Parts]) -> Parts:
        """All of ``items`` under one new key, so that the state is rescaled once."""
        seen = [item[0] for item in items]
        own = self.grow(b, seen)
        key = own if acc is None else self.grow(b, [acc[0], own])
        weights = self.weights(b, seen, key, own)
        sums: list[Fragment | None] = [None] * (len(self.dtypes) - 1)
        if acc is not None:
            factor = self.rescale(b, acc[0], key)
            sums = [b.apply("mul", d, p, factor) for p, d in zip(acc[1:], self.dtypes[1:], strict=True)]
        for w, item in zip(weights, items, strict=True):
            sums = [self.add(b, p, w, v, d) for p, v, d in zip(sums, item[1:], self.dtypes[1:], strict=True)]
        return key, *(p for p in sums if p is not None)

    def factors(self, b: Builder, w: Fragment, v: Fragment) -> tuple[Fragment, Fragment]:
        """A weight rounded as a narrower value is, and the value, both as wide as the sum."""
        if w.dtype == v.dtype:
            return w, v
        return b.apply("cast", w.dtype, b.apply("cast", v.dtype, w)), b.apply("cast", w.dtype, v)

    def add(self, b: Builder, total: Fragment | None, w: Fragment, v: Fragment, dtype: str) -> Fragment:
        """total + w*v, where a literal one (the denominator's v) costs no product."""
        one = set(v.atoms) == {literal(dtype, 1)}
        w, v = self.factors(b, w, v)
        if total is None:
            return w if one else b.apply("mul", dtype, w, v)
        return b.apply("add", dtype, total, w) if one else b.apply("fma", dtype, w, v, total)


@dataclass(frozen=True, slots=True)
class Recurrence(State):
    """(product, total1, ...): the map h -> product*h + total of the elements so far; maps compose in order."""

    twist: Twist
    dtypes: tuple[str, ...]

    def identity(self) -> tuple[Lit, ...]:
        return literal(self.dtypes[0], 1), *(literal(d, 0) for d in self.dtypes[1:])

    def merge(self, b: Builder, x: Parts, y: Parts) -> Parts:
        totals = [b.apply("fma", d, p, y[0], q) for p, q, d in zip(x[1:], y[1:], self.dtypes[1:], strict=True)]
        return b.apply("mul", self.dtypes[0], x[0], y[0]), *totals

    def collect(self, b: Builder, acc: Parts | None, items: Sequence[Parts]) -> Parts:
        for item in items:
            acc = item if acc is None else self.merge(b, acc, item)
        assert acc is not None
        return acc


@dataclass(frozen=True, slots=True)
class Adjusted(State):
    """(count, key, sum): the sum is of weight(s, centre) about the centre that key and count give (a variance).

    An item is (s, 1), with both zero beyond the fold's extent.  A group of items is summed about its own centre, and joined by
    what the move of the centre adds; a state of no elements has no centre, and adds nothing.
    """

    twist: Twist
    dtypes: tuple[str, ...]

    def identity(self) -> tuple[Lit, ...]:
        return tuple(literal(d, 0) for d in self.dtypes)

    def merge(self, b: Builder, x: Parts, y: Parts) -> Parts:
        dtype = self.dtypes[0]
        count, key = b.apply("add", dtype, x[0], y[0]), b.apply("add", dtype, x[1], y[1])
        centre = self._centre(b, key, count)
        return count, key, b.apply("add", dtype, self._moved(b, x, centre), self._moved(b, y, centre))

    def _centre(self, b: Builder, key: Fragment, count: Fragment) -> Expression:
        return self.twist.centre(Expression(b, key), Expression(b, count))  # type: ignore[no-any-return]

    def _moved(self, b: Builder, x: Parts, to: Expression) -> Fragment:
        """The sum of ``x`` about another centre."""
        assert self.twist.adjust is not None
        dtype, zero = self.dtypes[0], scalar(literal(self.dtypes[0], 0), self.dtypes[0])
        moved = self.twist.adjust(Expression(b, x[2]), self._centre(b, x[1], x[0]), to, Expression(b, x[0]))
        return b.apply("where", dtype, b.apply("eq", "bool", x[0], zero), zero, moved.frag)

    def collect(self, b: Builder, acc: Parts | None, items: Sequence[Parts]) -> Parts:
        add = Reduction(monoids()["sum"], self.dtypes[:1])
        (count,) = tree(b, add, [(one,) for _, one in items])
        (key,) = tree(b, add, [(s,) for s, _ in items])
        centre = self._centre(b, key, count)
        weights = [b.apply("mul", self.dtypes[0], one, self.twist.weight(Expression(b, s), centre).frag) for s, one in items]
        group = (count, key, *tree(b, add, [(w,) for w in weights]))
        empty = b.apply("eq", "bool", count, scalar(literal(self.dtypes[0], 0), self.dtypes[0]))
        zero = scalar(literal(self.dtypes[0], 0), self.dtypes[0])
        group = (count, key, b.apply("where", self.dtypes[0], empty, zero, group[2]))
        return group if acc is None else self.merge(b, acc, group)


class Expression(Scalar):
    """A `Scalar` of the rules' algebra whose operations emit code: twists are written once for all readers.

    ``base``: exp(x) is the hardware's 2^(x base), off by a factor of 1 + 2^-22 + |x| 2^-24.  Of weights exp(x), x <= 0, that are
    rounded to 16 bits anyway, that is less than 2^-21 of the largest.
    """

    def __init__(self, b: Builder, frag: Fragment, base: Fragment | None = None) -> None:
        self.b, self.frag, self.base = b, frag, base

    def _op(self, name: str, *others: Expression) -> Expression:
        if self.base is not None and exact(name) == "exp":
            return self._of(self.b.apply("exp2_approx", "f32", self.b.apply("mul", "f32", self.frag, self.base)))
        row = ops()[name]
        frags = (self.frag, *(o.frag for o in others))
        return self._of(self.b.apply(name, row.gives(frags[-1].dtype), *frags))

    def like(self, value: float) -> Expression:
        return self._of(scalar(literal(self.frag.dtype, value), self.frag.dtype))

    def _of(self, frag: Fragment) -> Expression:
        return Expression(self.b, frag, self.base)


def state(carry: Carry, dtype: str, product: bool, rounded: bool = False) -> State:
    """The state of ``carry``, whose first argument has ``dtype``; ``product``: its argument is given as two factors;
    ``rounded``: a value that it weights is narrower."""
    if carry.kind == "monoid":
        return Reduction(monoids()[carry.name], (dtype,), product)
    if carry.kind == "arg":
        return ArgReduction(bests()[carry.name], (dtype, "i64"))
    if len(set(carry.dtypes)) > 1:
        raise Unsupported(carry.name, f"a twisted fold whose state mixes {', '.join(carry.dtypes)}")
    twist = twists()[carry.name]
    if twist.affine:
        return Recurrence(twist, carry.dtypes)
    if twist.adjust is None:
        return Twisted(twist, carry.dtypes, rounded)
    if len(carry.results) != 2 or twist.key != "sum":
        raise Unsupported(carry.name, "a fold adjusted by a count, of other than one sum")
    return Adjusted(twist, (carry.dtypes[0], *carry.dtypes))
