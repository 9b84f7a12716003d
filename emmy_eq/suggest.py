"""Rules that a program's own values suggest: classes that agree modulo primes at every sample, and that no rule joins.

Each pair becomes a candidate: the classes that both sides share become the rule's values, the axes that they fold over its axis sets, and
what a value does not vary along a guard.  A candidate is tested as any rule is; smallest first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emmy_eq import ops, terms
from emmy_eq.egraph import ENode, Saturated
from emmy_eq.rule import Equation, Kind, Phase, Rounding, Rule, rewrite
from emmy_eq.text import table
from emmy_eq.verify.audit import fingerprints, shallowest
from emmy_eq.verify.check import Verdict, check_on_draws

LARGEST = 12  # nodes of both sides together
PAIRS = 400  # candidates that are tested
DRAWS = 40


@dataclass(frozen=True, slots=True)
class Suggestion:
    """``verdict`` of a candidate; ``rounding`` is the strictest class in which it holds."""

    rule: Rule
    size: int
    verdict: Verdict

    def record(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {"rewrite": str(self.rule), "size": self.size, "rounding": self.rule.rounding.name.lower(), "draws": self.verdict.draws}


def suggest(saturated: Saturated) -> list[Suggestion]:
    """Candidates that hold, smallest first; one of each formula."""
    known: dict[str, Suggestion] = {}
    pairs = sorted(_pairs(saturated), key=lambda p: (p.size, p.text))
    for pair in pairs[:PAIRS]:
        rule = pair.rule(Rounding.EXACT)
        if rule is None or str(rule) in known:
            continue
        for rounding in (Rounding.EXACT, Rounding.REASSOCIATES):
            candidate = pair.rule(rounding)
            assert candidate is not None
            found = Suggestion(candidate, pair.size, check_on_draws(candidate, DRAWS))
            known[str(rule)] = found
            if found.verdict.holds:
                break
    return [s for s in known.values() if s.verdict.holds]


def show(found: Sequence[Suggestion]) -> str:
    """One line a suggestion."""
    if not found:
        return "Nothing: the values that agree are joined, or differ in more than a small rule says."
    rows = [[str(s.size), s.rule.rounding.name.lower(), str(s.verdict.draws), str(s.rule)] for s in found]
    return table(["size", "rounding", "draws", "rewrite"], rows)


@dataclass(frozen=True, slots=True)
class Term:
    """A class's term: ``op`` as in `ENode`, ``var`` (``attr`` is the class) where a value of the rule stands."""

    op: str
    args: tuple[Term, ...]
    attr: Any

    @property
    def size(self) -> int:
        return 1 + sum(a.size for a in self.args)

    def walk(self) -> Iterator[Term]:
        yield self
        for a in self.args:
            yield from a.walk()


@dataclass(frozen=True, slots=True)
class Pair:
    """``left`` may become ``right``; ``free`` and ``dtype`` of the program's classes."""

    left: Term
    right: Term
    saturated: Saturated

    @property
    def size(self) -> int:
        return self.left.size + self.right.size

    @property
    def text(self) -> str:
        return f"{self.left} {self.right}"

    def rule(self, rounding: Rounding) -> Rule | None:
        """The candidate; None where the right side has a value that the left has not, or the left is nothing but a value."""
        sat, values = self.saturated, _values(self.left)
        if (
            self.left.op in ("var", "lit")
            or not values
            or not set(_values(self.right)) <= set(values)
            or not _masks(self.right) <= _masks(self.left)
        ):
            return None
        masks = sorted(_masks(self.left))
        names = {cls: "abcdefgh"[n] for n, cls in enumerate(values[:8])}
        sets = {mask: "kjmn"[n] for n, mask in enumerate(masks[:4])}
        if len(names) < len(values) or len(sets) < len(masks):
            return None
        kinds: dict[int, Kind] = {cls: "bool" if sat.dtype[cls] == "bool" else "val" for cls in values}
        args: tuple[tuple[str, Kind], ...] = (*((names[c], kinds[c]) for c in values), *((sets[m], "axes") for m in masks))

        def body(*given: Any) -> Equation:
            named = dict(zip((name for name, _ in args), given, strict=True))
            scope = {c: named[n] for c, n in names.items()}
            over = {m: named[n] for m, n in sets.items()}
            some = next(scope[c] for c in values if kinds[c] == "val")
            apart = tuple(scope[c].free_of(over[m]) for c in values for m in masks if not sat.free[c] & m)
            disjoint = tuple(over[m].disjoint(over[n]) for m in masks for n in masks if m < n and not m & n)
            left, right = (_build(t, scope, over, some) for t in (self.left, self.right))
            return rewrite(left, right, when=(*apart, *disjoint))

        if "val" not in kinds.values():
            return None
        return Rule("suggested", "", rounding, Phase.ALGEBRA, "emmy-eq rules suggest", args, body)


def _build(t: Term, scope: Mapping[int, Any], over: Mapping[int, Any], some: Any) -> Any:
    """The term in whatever reading of the algebra ``scope`` is in."""
    if t.op == "var":
        return scope[t.attr]
    if t.op == "lit":
        return some.like(float(t.attr))
    args = [_build(a, scope, over, some) for a in t.args]
    if t.op == "reduce":
        return args[0].reduce(t.attr[0], over[t.attr[1]])
    if t.op == "twist":
        return args[0].twist(t.attr[0], args[1], over[t.attr[1]])
    return args[0].call(t.op, *args[1:])


def _values(t: Term) -> list[int]:
    return list(dict.fromkeys(x.attr for x in t.walk() if x.op == "var"))


def _masks(t: Term) -> set[int]:
    return {x.attr[1] for x in t.walk() if x.op in ("reduce", "twist")}


def _pairs(saturated: Saturated) -> Iterator[Pair]:
    """Both directions of every pair of classes that agree, as general as the classes that they share allow, and less so."""
    alike: dict[bytes, list[int]] = defaultdict(list)
    for cls, print_ in fingerprints(saturated).items():
        alike[print_].append(cls)
    first = shallowest(saturated)
    for group in alike.values():
        for a in group:
            for b in group:
                if a == b:
                    continue
                shared = _below(a, first) & _below(b, first) - {a, b}
                for stop in (shared, set[int]()):
                    pair = Pair(_term(a, stop, saturated, first), _term(b, stop, saturated, first), saturated)
                    if pair.size <= LARGEST:
                        yield pair


def _below(cls: int, first: Mapping[int, ENode]) -> set[int]:
    """The classes of a class's shallowest term."""
    seen, queue = {cls}, [cls]
    for c in queue:
        new = set(first[c].children) - seen
        seen |= new
        queue += sorted(new)
    return seen


def _term(cls: int, stop: set[int], saturated: Saturated, first: Mapping[int, ENode]) -> Term:
    """The shallowest term of ``cls`` down to the classes of ``stop``, to loads, and to what the algebra has no word for."""
    node = first[cls]
    if node.op == "load" and node.attr[0] == "stored" and saturated.free[cls] == saturated.free[node.children[-1]]:
        own = tuple(saturated.axes.axes[n].name for n in range(len(saturated.axes.axes)) if node.attr[1] >> n & 1)
        if tuple(i.name for i in node.attr[2]) == own:
            return _term(node.children[0], stop, saturated, first)
    if cls in stop or not (node.op in ops.ops() or node.op in ("lit", "reduce", "twist")):
        return Term("var", (), cls)
    if node.op == "lit":
        return Term("lit", (), terms.from_bits(saturated.dtype[cls], node.attr))
    return Term(node.op, tuple(_term(c, stop, saturated, first) for c in node.children), node.attr)
