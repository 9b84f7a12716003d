"""The vocabulary of the e-graph: constructors, analyses, and which rules can apply.

    (Lit dtype bits) (Iota idx mask) (Load buffer idxs dtype mask g...) (Read v mask) (At v axes idxs mask g...)
    (Add a b) (Exp a) ...  one constructor a row of `emmy_eq.ops`;  (Cast dtype v)  (Count dtype mask)
    (Reduce monoid v mask) (Argreduce name v mask) (Scan monoid v mask) (Running name s v mask) (Twist name s v mask)

Axis sets are i64 masks; a dtype is one bit, so that a class with two dtypes shows as a number that is no power of two (extents
belong to the axes, so no class can have two).  Index expressions are canonical by construction: the e-graph keeps their text and
never looks inside.  ``Read`` is a pointwise load of a stored value, ``At`` a renamed one.  Analyses: ``(free v)`` and ``(dtype v)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from emmy_eq import ops

_DTYPES = tuple(ops.DTYPES)
REALS = sum(1 << _DTYPES.index(d) for d in ("f32", "f64"))  # the mask of dtypes that real arithmetic is done in
FLOATS = sum(1 << _DTYPES.index(d) for d in ops.FLOATS)
MAX_GATHERS = 8  # data-dependent coordinates of one load


def code(dtype: str) -> int:
    """The bit that stands for ``dtype``."""
    return 1 << _DTYPES.index(dtype)


def dtype_of(bit: int) -> str:
    """Inverse of `code`."""
    return _DTYPES[bit.bit_length() - 1]


def constructor(op: str) -> str:
    """The constructor of a row of `emmy_eq.ops` (capitalized: egglog has primitives of its own called ``abs``, ``log``, ...)."""
    return op.capitalize()


def literal(dtype: str, bits: int) -> str:
    return f"(Lit {code(dtype)} {bits - (1 << 64) if bits >> 63 else bits})"


def _constructors() -> Iterator[tuple[str, str, str, str]]:
    """(name, columns, free axes, dtype) of every constructor, where c0, c1, ... are the cells, f0 and d0 the facts of c0."""
    yield "Lit", "i64 i64", "0", "c0"
    yield "Iota", "String i64", "c1", str(code("i64"))
    yield "Count", "i64 i64", "0", "c0"
    yield "Cast", "i64 Val", "f1", "c0"
    yield "Read", "Val i64", "c1", "d0"
    yield "Reduce", "String Val i64", "(& f1 (not-i64 c2))", "d1"
    yield "Argreduce", "String Val i64", "(& f1 (not-i64 c2))", str(code("i64"))
    yield "Scan", "String Val i64", "(| f1 c2)", "d1"
    yield "Running", "String Val Val i64", "(| (| f1 f2) c3)", "d2"
    yield "Twist", "String Val Val i64", "(& (| f1 f2) (not-i64 c3))", "d1"
    for n in range(MAX_GATHERS + 1):
        free = _union(["c3", *(f"f{4 + k}" for k in range(n))])
        yield f"Load{n}", "String String i64 i64" + " Val" * n, free, "c2"
        yield f"At{n}", "Val i64 String i64" + " Val" * n, free, "d0"
    for row in ops.ops().values():
        dtype = f"d{row.arity - 1}" if row.result == "same" else str(code(row.result))
        yield constructor(row.name), " ".join(["Val"] * row.arity), _union([f"f{k}" for k in range(row.arity)]), dtype


def applicable(rules: Sequence[str], program: str) -> list[str]:
    """Those of ``rules`` whose premises can ever be met: each constructor in them occurs in ``program`` or in what such a rule adds."""
    reach = _heads(program)
    waiting = {text: text.partition(" ((union root ") for text in rules}
    while ready := [text for text, (premise, _, _) in waiting.items() if _heads(premise) - _BUILT_IN <= reach]:
        for text in ready:
            reach |= _heads(waiting.pop(text)[2])
    return [text for text in rules if text not in waiting]


_BUILT_IN = frozenset({"rule", "=", "!=", "&", "|", "not-i64", "free", "dtype", "empty-axes", "Summand", "Smaller"})


def _heads(text: str) -> set[str]:
    return {word.strip("()") for word in text.split() if word.startswith("(")}


def _summands(used: Set[str]) -> Iterator[str]:
    """Which values stand under a sum, as it or as factors of it: where a product may be regrouped."""
    yield "(relation Summand (Val i64))"
    if "Reduce" in used:
        yield '(rule ((= v (Reduce "sum" a k))) ((Summand a k)) :ruleset analysis :name "analysis.summand")'
    if "Mul" in used:
        yield '(rule ((Summand v k) (= v (Mul a b))) ((Summand a k) (Summand b k)) :ruleset analysis :name "analysis.factor")'
    if "Div" in used:
        yield '(rule ((Summand v k) (= v (Div a b))) ((Summand a k)) :ruleset analysis :name "analysis.numerator")'


def _constants(used: Set[str]) -> Iterator[str]:
    """Constant terms are folded by `emmy_eq.fold` and rewritten by no rule: 0 is the sum of 0 * n for every n, without end."""
    for name in sorted({"Add", "Sub", "Mul", "Div"} & used):
        facts = f"(= v ({name} a b)) (= a (Lit d x)) (= b (Lit e y)) (= f (free v))"
        yield f'(rule ({facts}) ((subsume ({name} a b))) :ruleset analysis :name "constant.{name}")'
    if "Reduce" in used:
        facts = "(= v (Reduce m a k)) (= a (Lit d x)) (= f (free v))"
        yield f'(rule ({facts}) ((subsume (Reduce m a k))) :ruleset analysis :name "constant.Reduce")'


def _union(masks: Sequence[str]) -> str:
    text = masks[0]
    for mask in masks[1:]:
        text = f"(| {text} {mask})"
    return text


def _analysis(name: str, arity: int, free: str, dtype: str) -> str:
    """The rule that gives a term its free axes and its dtype."""
    words = set(f"{free} {dtype}".replace("(", " ").replace(")", " ").split())
    facts = [f"(= v ({name} {' '.join(f'c{k}' for k in range(arity))}))"]
    facts += [f"(= f{k} (free c{k}))" for k in range(arity) if f"f{k}" in words]
    facts += [f"(= d{k} (dtype c{k}))" for k in range(arity) if f"d{k}" in words]
    return f'(rule ({" ".join(facts)}) ((set (free v) {free}) (set (dtype v) {dtype})) :ruleset analysis :name "analysis.{name}")'


def signature(text: str) -> str:
    """Declarations and analysis rules for the constructors that ``text`` (rules and program) mentions."""
    used = _heads(text)
    lines = [
        "(sort Val)",
        "(function free (Val) i64 :merge (& old new))",  # what one member does not depend on, none does
        "(function dtype (Val) i64 :merge (| old new))",
        "(function empty-axes () i64 :no-merge)",
        "(relation Conflict (Val))",
        "(relation Smaller (i64 i64))",
        "(ruleset analysis)",
    ]
    for name, columns, free, dtype in _constructors():
        if name in used or name == "Lit":
            lines += [f"(constructor {name} ({columns}) Val)", _analysis(name, len(columns.split()), free, dtype)]
    lines += _constants(used)
    lines += _summands(used) if "Summand" in used else ()
    lines.append('(rule ((= d (dtype v)) (!= (& d (- d 1)) 0)) ((Conflict v)) :ruleset analysis :name "canary.dtype")')
    lines.append('(rule ((= v (Lit d a)) (= v (Lit d b)) (!= a b)) ((Conflict v)) :ruleset analysis :name "canary.constants")')
    return "\n".join(lines)
