"""A term program as egglog text, in the vocabulary of `emmy_eq.signature`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

from emmy_eq import index as ix
from emmy_eq import signature
from emmy_eq.index import Idx
from emmy_eq.terms import AxisTable, InputBuf, TermProgram, Val, is_pointwise, to_bits, topological


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
        out.lines.append(f"(set (free {name}) {v.free}) (set (dtype {name}) {signature.code(v.dtype)})")
    for a, b in program.equalities:
        out.lines.append(f"(union {out.names[id(a)]} {out.names[id(b)]})")
    return out


def _counts(program: TermProgram) -> Iterator[str]:
    """How many points the program's own sums have, so that a mean is known as one."""
    sums = (v for v in topological([r.val for r in program.results]) if v.op == "reduce" and v.attr[0] == "sum")
    for mask, dtype in sorted({(v.attr[1], v.dtype) for v in sums if signature.code(v.dtype) & signature.REALS}):
        bits = to_bits(dtype, program.axes.points(mask))
        yield f"(union (Count {signature.code(dtype)} {mask}) {signature.literal(dtype, bits)})"


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
        return signature.literal(v.dtype, v.attr)
    if v.op == "iota":
        return f'(Iota "{_indices((v.attr,), out)}" {v.free})'
    if v.op == "cast":
        return f"(Cast {signature.code(v.dtype)} {args[0]})"
    if v.op in ("reduce", "argreduce", "scan", "twist"):
        name, mask = v.attr
        head = "Running" if v.op == "scan" and len(args) > 1 else v.op.capitalize()
        return f'({head} "{name}" {" ".join(args)} {mask})'
    if v.op == "load":
        return _load(v, args, out, axes)
    return f"({signature.constructor(v.op)} {' '.join(args)})"


def _load(v: Val, gathers: list[str], out: Encoding, axes: AxisTable) -> str:
    buf, idxs = v.attr
    tail = "".join(f" {g}" for g in gathers)
    mask = 0
    for i in idxs:
        mask |= axes.mask(i)
    if isinstance(buf, InputBuf):
        out.buffers[buf.name] = buf
        return f'(Load{len(gathers)} "{buf.name}" "{_indices(idxs, out)}" {signature.code(buf.dtype)} {mask}{tail})'
    stored = out.names[id(buf.val)]
    if is_pointwise(v, axes):
        return f"(Read {stored} {buf.mask})"
    return f'(At{len(gathers)} {stored} {buf.mask} "{_indices(idxs, out)}" {mask}{tail})'


def _indices(idxs: tuple[Idx, ...], out: Encoding) -> str:
    text = ", ".join(ix.show(i) for i in idxs)
    out.indices[text] = idxs
    return text
