"""Terms as egglog text.

    (Lit dtype bits) (Iota idx mask) (Load buffer idxs dtype mask g...) (Read v mask) (At v axes idxs mask g...)
    (Add a b) (Exp a) ...  one constructor a row of `emmy_eq.ops`;  (Cast dtype v)  (Count dtype mask)
    (Reduce monoid v mask) (Argreduce name v mask) (Scan monoid v mask) (Twist name s v mask)

Axis sets are i64 masks; a dtype is one bit, so that a class with two dtypes shows as a number that is no power of two.
Index expressions are canonical by construction, so the e-graph keeps their text and never looks inside.  ``Read`` is a
pointwise load of a stored value, ``At`` a renamed one.  Analyses: ``(free v)`` and ``(dtype v)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import permutations

from emmy_eq import index as ix
from emmy_eq import ops
from emmy_eq.index import Idx
from emmy_eq.terms import AxisTable, InputBuf, TermProgram, Val, is_pointwise, to_bits, topological

_DTYPES = tuple(ops.DTYPES)
REALS = sum(1 << _DTYPES.index(d) for d in ("f32", "f64"))  # the mask of dtypes that real arithmetic is done in
FLOATS = sum(1 << _DTYPES.index(d) for d in ops.FLOATS)
MAX_GATHERS = 4  # data-dependent coordinates of one load


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
    """(name, columns, free axes, dtype) of every constructor; ``{f0}`` and ``{d0}`` are the facts of the Val in column 0."""
    yield "Lit", "i64 i64", "0", "{0}"
    yield "Iota", "String i64", "{1}", str(code("i64"))
    yield "Count", "i64 i64", "0", "{0}"
    yield "Cast", "i64 Val", "{f1}", "{0}"
    yield "Read", "Val i64", "{1}", "{d0}"
    yield "Reduce", "String Val i64", "(& {f1} (not-i64 {2}))", "{d1}"
    yield "Argreduce", "String Val i64", "(& {f1} (not-i64 {2}))", str(code("i64"))
    yield "Scan", "String Val i64", "(| {f1} {2})", "{d1}"
    yield "Twist", "String Val Val i64", "(& (| {f1} {f2}) (not-i64 {3}))", "{d2}"
    for n in range(MAX_GATHERS + 1):
        yield f"Load{n}", "String String i64 i64" + " Val" * n, _union(["{3}", *(f"{{f{4 + k}}}" for k in range(n))]), "{2}"
        yield f"At{n}", "Val i64 String i64" + " Val" * n, _union(["{3}", *(f"{{f{4 + k}}}" for k in range(n))]), "{d0}"
    for row in ops.ops().values():
        free = _union([f"{{f{k}}}" for k in range(row.arity)])
        dtype = f"{{d{row.arity - 1}}}" if row.result == "same" else str(code(row.result))
        yield constructor(row.name), " ".join(["Val"] * row.arity), free, dtype


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
    return {word.lstrip("(") for word in text.split() if word.startswith("(")}


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
        if name not in used and name != "Lit":
            continue
        lines.append(f"(constructor {name} ({columns}) Val)")
        facts: list[str] = []
        names: dict[str, str] = {}
        for k, sort in enumerate(columns.split()):
            if sort == "Val" and f"{{f{k}}}" in free:
                facts.append(f"(= f{k} (free c{k}))")
            if sort == "Val" and f"{{d{k}}}" in dtype:
                facts.append(f"(= d{k} (dtype c{k}))")
            names |= {f"f{k}": f"f{k}", f"d{k}": f"d{k}"}
        cells = [f"c{k}" for k in range(len(columns.split()))]
        sets = f"(set (free v) {free.format(*cells, **names)}) (set (dtype v) {dtype.format(*cells, **names)})"
        facts = [f"(= v ({name} {' '.join(cells)}))", *facts]
        lines.append(f'(rule ({" ".join(facts)}) ({sets}) :ruleset analysis :name "analysis.{name}")')
    lines += _constants(used)
    lines += _summands(used) if "Summand" in used else ()
    lines.append('(rule ((= d (dtype v)) (!= (& d (- d 1)) 0)) ((Conflict v)) :ruleset analysis :name "canary.dtype")')
    lines.append('(rule ((= v (Lit d a)) (= v (Lit d b)) (!= a b)) ((Conflict v)) :ruleset analysis :name "canary.constants")')
    return "\n".join(lines)


@dataclass(slots=True)
class Encoding:
    """The text of one program, and what its strings stand for."""

    lines: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # id of a Val -> egglog global
    buffers: dict[str, InputBuf] = field(default_factory=dict)
    indices: dict[str, tuple[Idx, ...]] = field(default_factory=dict)
    dtypes: set[str] = field(default_factory=set)

    @property
    def reals(self) -> tuple[str, ...]:
        """The dtypes in which the program does real arithmetic; f32 in one that does none."""
        return tuple(d for d in ("f32", "f64") if d in self.dtypes) or ("f32",)


def encode(program: TermProgram) -> Encoding:
    """One ``let`` a term, with its analyses set outright, so that no round is spent to find them."""
    out = Encoding()
    empty = sum(a.bit for a in program.axes.axes if a.extent == 0)
    out.lines.append(f"(set (empty-axes) {empty})")
    out.lines += _smaller(program)
    out.lines += _counts(program)
    roots = [r.val for r in program.results] + [s[1] for s in program.seams] + [v for pair in program.equalities for v in pair]
    for n, v in enumerate(topological(roots)):
        name = out.names[id(v)] = f"$v{n}"
        out.dtypes.add(v.dtype)
        out.lines.append(f"(let {name} {_term(v, out, program.axes)})")
        out.lines.append(f"(set (free {name}) {v.free}) (set (dtype {name}) {code(v.dtype)})")
    for a, b in program.equalities:
        out.lines.append(f"(union {out.names[id(a)]} {out.names[id(b)]})")
    return out


def _counts(program: TermProgram) -> Iterator[str]:
    """How many points the program's own sums have, so that a mean is known as one."""
    sums = (v for v in topological([r.val for r in program.results]) if v.op == "reduce" and v.attr[0] == "sum")
    for mask, dtype in sorted({(v.attr[1], v.dtype) for v in sums if code(v.dtype) & REALS}):
        bits = to_bits(dtype, program.axes.points(mask))
        yield f"(union (Count {code(dtype)} {mask}) {literal(dtype, bits)})"


def _smaller(program: TermProgram) -> Iterator[str]:
    """The order by size of the axis sets that the program itself reduces over; of other sets nothing is said."""
    masks = {v.attr[1] for v in topological([r.val for r in program.results]) if v.op == "reduce"}
    points = {m: program.axes.points(m) for m in sorted(masks)}
    for small, large in permutations(points, 2):
        if points[small] < points[large]:
            yield f"(Smaller {small} {large})"


def _term(v: Val, out: Encoding, axes: AxisTable) -> str:
    args = [out.names[id(a)] for a in v.args]
    if v.op == "lit":
        return literal(v.dtype, v.attr)
    if v.op == "iota":
        return f'(Iota "{_indices((v.attr,), out)}" {v.free})'
    if v.op == "cast":
        return f"(Cast {code(v.dtype)} {args[0]})"
    if v.op in ("reduce", "argreduce", "scan", "twist"):
        name, mask = v.attr
        return f'({v.op.capitalize()} "{name}" {" ".join(args)} {mask})'
    if v.op == "load":
        return _load(v, args, out, axes)
    return f"({constructor(v.op)} {' '.join(args)})"


def _load(v: Val, gathers: list[str], out: Encoding, axes: AxisTable) -> str:
    buf, idxs = v.attr
    tail = "".join(f" {g}" for g in gathers)
    mask = 0
    for i in idxs:
        mask |= axes.mask(i)
    if isinstance(buf, InputBuf):
        out.buffers[buf.name] = buf
        return f'(Load{len(gathers)} "{buf.name}" "{_indices(idxs, out)}" {code(buf.dtype)} {mask}{tail})'
    stored = out.names[id(buf.val)]
    if is_pointwise(v, axes):
        return f"(Read {stored} {buf.mask})"
    return f'(At{len(gathers)} {stored} {buf.mask} "{_indices(idxs, out)}" {mask}{tail})'


def _indices(idxs: tuple[Idx, ...], out: Encoding) -> str:
    text = ", ".join(ix.show(i) for i in idxs)
    out.indices[text] = idxs
    return text
