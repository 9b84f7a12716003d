"""Verifier of terms: cached facts, indices in bounds, axes that hold what they are said to hold."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.ops import ops
from emmy_eq.terms.grammar import Axis, AxisTable, InputBuf, TermProgram, Val, is_pointwise, topological
from emmy_eq.terms.text import show


def verify(program: TermProgram) -> None:
    """Raises `VerifyError` where a term's cached facts, an index, a result's axes or a seam is not what the grammar says."""
    table = program.axes
    if [a.id for a in table.axes] != list(range(len(table.axes))) or len(table.by_name) != len(table.axes):
        raise VerifyError("term", "axes", "ids are not 0, 1, ... or names repeat")
    known = (1 << len(table.axes)) - 1
    roots = [*(r.val for r in program.results), *(load for _, load, _ in program.seams), *(v for pair in program.equalities for v in pair)]
    for v in topological(roots):
        _verify_term(v, table, known)
    for r in program.results:
        mask = _distinct(r.axes, r.name)
        if r.val.free & ~mask or table.points(mask) != prod(r.shape):
            raise VerifyError("term", r.name, f"axes {[a.name for a in r.axes]} do not hold the value or the shape {r.shape}")
    for name, load, order in program.seams:
        if not is_pointwise(load, table) or _distinct(order, name) != load.attr[0].mask:
            raise VerifyError("term", name, "a seam is a pointwise load with an order of all its axes")
    for a, b in program.equalities:
        if a.dtype != b.dtype or b.free & ~a.free:
            raise VerifyError("term", show(a), "its equal has another dtype or more axes")


def _distinct(axes: Sequence[Axis], where: str) -> int:
    mask = sum({a.bit for a in axes})
    if mask.bit_count() != len(axes):
        raise VerifyError("term", where, "an axis appears twice")
    return mask


def _verify_term(v: Val, table: AxisTable, known: int) -> None:
    free = 0
    for a in v.args:
        free |= a.free
    if v.op in ("reduce", "argreduce", "twist"):
        free &= ~v.attr[1]
    if v.op == "scan":
        free |= v.attr[1]
    if v.op == "iota":
        free = table.mask(v.attr)
    if v.op == "load":
        for x in v.attr[1]:
            free |= table.mask(x)
        _verify_load(v, table)
    masked = v.op in ("reduce", "argreduce", "scan", "twist")
    if v.free != free or v.free & ~known or (masked and (not v.attr[1] or v.attr[1] & ~known)):
        raise VerifyError("term", show(v), f"free axes {v.free:b} are not {free:b}, or not axes of the program")
    if v.op in ops() and len(v.args) != ops()[v.op].arity:
        raise VerifyError("term", show(v), f"{v.op} takes {ops()[v.op].arity} arguments")


def _verify_load(v: Val, table: AxisTable) -> None:
    """Coordinates match the buffer's dims, name known axes, and stay in bounds (data-dependent ones are checked when run)."""
    buf, idxs = v.attr
    dims = buf.shape if isinstance(buf, InputBuf) else tuple(a.extent for a in table.of(buf.mask))
    names = set(table.by_name) | {f"g{k}" for k in range(len(v.args))}
    if len(idxs) != len(dims) or not all(ix.variables(x) <= names for x in idxs) or any(g.dtype != "i64" for g in v.args):
        raise VerifyError("term", show(v), "coordinates do not match the buffer, or name unknown variables")
    for x, extent in zip(idxs, dims, strict=True):
        # Where there are too many points to try, an enclosure that is too wide is let pass.
        if ix.variables(x) <= set(table.by_name) and ix.inside(x, extent, {a.name: a.extent for a in table.of(table.mask(x))}) is False:
            raise VerifyError("term", show(v), f"index {x} leaves [0, {extent})")
