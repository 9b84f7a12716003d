"""Whether a mutant that no layer refuted is a true rule: by its normal form, by the guard that it lost, by z3, or as a polynomial identity.

The normal form rests on facts that hold bit for bit.  A guard that says when a move is of use, and not when it is true
(`Val.summed_over`, `Axes.smaller_than`), may go.  Without ``k.not_empty()`` a rule must also hold where k is empty, which
its normal form under that premise shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from emmy_eq import ops
from emmy_eq.rule import Rounding, Rule
from emmy_eq.verify import field, solver
from emmy_eq.verify.draws import Abstains, draws
from emmy_eq.verify.recorded import Call, Recording, record

PROOF_SEED, PROOF_DRAWS = 7, 40
HINTS = frozenset({"summed_over", "smaller_than"})
EMPTY = "nothing"  # the axis set without axes, in normal forms
_MIRROR: Mapping[str, str] = {"gt": "lt", "ge": "le"}
_IDEMPOTENT = frozenset({"maximum", "minimum", "and", "or"})


def is_true(mutant: Rule, origin: Rule) -> bool:
    """Whether ``mutant`` is proved, given that ``origin`` is true."""
    if is_same(mutant, origin):
        return True
    try:
        return solver.refutes(mutant) is None
    except Abstains:
        return _is_identity(mutant)


def is_same(mutant: Rule, origin: Rule) -> bool:
    """Whether the normal forms alone prove it."""
    return _implied(record(mutant), record(origin), mutant.rounding is not Rounding.EXACT)


def _is_identity(mutant: Rule) -> bool:
    """Whether modular arithmetic proves it, on draws that no layer has used."""
    if not field.is_polynomial(mutant):
        return False
    tried = islice(draws(mutant, PROOF_SEED, axes=3, extent=3), 40 * PROOF_DRAWS)
    held = list(islice((draw for draw in tried if all(field.residues(mutant, draw).when)), PROOF_DRAWS))
    return len(held) == PROOF_DRAWS and all(field.refutes(mutant, draw) is None for draw in held)


def _implied(changed: Recording, old: Recording, inhabited: bool) -> bool:
    """``inhabited``: neither rule is for axes without elements, as only exact ones are."""
    plain = Normal(inhabited=inhabited)
    lhs, rhs = plain.of(changed.lhs), plain.of(changed.rhs)
    if lhs == rhs:
        return True
    if (lhs, rhs) != (plain.of(old.lhs), plain.of(old.rhs)):
        return False
    lost = [g for g in old.when if g not in changed.when and g.method not in HINTS]
    return all(guard.method == "not_empty" and Normal(guard.args[0]).proves(changed) for guard in lost)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal forms where the axis set ``empty`` (a tree) has no axes; ``inhabited``: all axes have elements."""

    empty: Any = None
    inhabited: bool = False

    def proves(self, recording: Recording) -> bool:
        return bool(self.of(recording.lhs) == self.of(recording.rhs))

    def of(self, tree: Any) -> Any:
        if tree == self.empty:
            return EMPTY
        if not isinstance(tree, Call):
            return tree
        if self._contained(tree):
            return self.of(tree.args[0])
        args = tuple(self.of(a) for a in tree.args)
        if tree.method == "_op":
            return self._op(args[1], [args[0], *args[2:]])
        if tree.method == "_reduce":
            return _reduction(*args)
        if tree.method == "like":
            return Call("like", ("", args[1]))  # the receiver gives the dtype alone
        if tree.method == "count":
            return Call("like", ("", 1.0)) if args[1] == EMPTY else Call("count", ("", args[1]))
        if tree.method in ("__and__", "__or__") and args[0] == args[1]:
            return args[0]
        if tree.method in ("__or__", "__sub__") and args[1] == EMPTY:
            return args[0]
        if tree.method in ("__and__", "__or__"):
            return Call(tree.method, tuple(sorted(args, key=str)))
        return Call(tree.method, args)

    def _contained(self, tree: Call) -> bool:
        """Where k - f is empty, k & f is k."""
        empty = self.empty
        return tree.method == "__and__" and isinstance(empty, Call) and empty.method == "__sub__" and tree.args == empty.args

    def _magnitude(self, tree: Any) -> bool:
        """Whether it is NaN or not below 0.0: |x|, and the greatest of some."""
        if not isinstance(tree, Call):
            return False
        greatest = self.inhabited and tree.method == "_reduce" and tree.args[1] == "max"
        return (tree.method == "_op" and tree.args[1] == "abs") or (greatest and self._magnitude(tree.args[0]))

    def _op(self, name: str, args: list[Any]) -> Any:
        if name == "maximum" and args[1] == Call("like", ("", 0.0)) and self._magnitude(args[0]):
            return args[0]
        return _op(name, args)


def _reduction(v: Any, monoid: Any, k: Any) -> Any:
    """Over nothing it is its operand; where the monoid is idempotent, nested ones merge, whatever axes they share."""
    if k == EMPTY:
        return v
    if monoid in ("max", "min", "any", "all") and isinstance(v, Call) and v.method == "_reduce" and v.args[1] == monoid:
        both = sorted([v.args[2], k], key=str)
        return Call("_reduce", (v.args[0], monoid, Call("__or__", tuple(both))))
    return Call("_reduce", (v, monoid, k))


def _op(name: str, args: list[Any]) -> Any:
    if name in _MIRROR:
        name, args = _MIRROR[name], args[::-1]
    if name == "where":
        condition, a, b = args
        if a == b:
            return a
        if isinstance(condition, Call) and condition.method == "_op" and condition.args[1] == "not":
            return Call("_op", (condition.args[0], name, b, a))
    if name in _IDEMPOTENT and args[0] == args[1]:
        return args[0]
    if name == "neg" and isinstance(args[0], Call) and args[0].method == "_op" and args[0].args[1] == "neg":
        return args[0].args[0]
    if name == "mul" and Call("like", ("", 1.0)) in args:
        args.remove(Call("like", ("", 1.0)))
        return args[0]
    if ops.ops()[name].commutative:
        args = sorted(args, key=str)
    return Call("_op", (args[0], name, *args[1:]))
