"""Arithmetic of positions: what is computed from iotas and constants is an index expression, and a mask that its bounds decide is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.index import Idx
from emmy_eq.tensor_ir import Const, Elementwise, IndexMap, Iota, Node
from emmy_eq.terms import AxisTable, Val

DTYPES = ("i64", "bool")


def positional(nodes: Sequence[Node]) -> list[bool]:
    """Which nodes are integers or masks that depend on positions alone."""
    found: list[bool] = []
    for node in nodes:
        if isinstance(node, IndexMap):
            found.append(found[node.arg])
        elif isinstance(node, Elementwise):
            found.append(node.dtype in DTYPES and all(found[a] for a in node.args))
        else:
            found.append(isinstance(node, Const | Iota) and node.dtype in DTYPES)
    return found


def apply(op: str, args: Sequence[Val], axes: AxisTable, simplify: Callable[[Idx], Idx], extents: Mapping[str, int]) -> Val:
    """As `emmy_eq.terms.apply`, folded where all operands are positions, or a mask among them is decided."""
    masks = [a.attr for a in args if a.op == "lit" and a.dtype == "bool"]
    if op == "where" and args[0].op == "lit":
        return args[1] if args[0].attr else args[2]
    if op in ("and", "or") and args[0].dtype == "bool" and masks:
        absorbs = op == "or"
        return tm.number("bool", absorbs) if absorbs in map(bool, masks) else next((a for a in args if a.op != "lit"), args[0])
    left, right = map(_index, args) if len(args) == 2 else (None, None)
    if left is None or right is None:
        return tm.apply(op, *args)
    if op in _COMPARED:
        decided = _COMPARED[op](*ix.bounds(simplify(left - right), extents))
        return tm.apply(op, *args) if decided is None else tm.number("bool", decided)
    if (x := _expression(op, left, right)) is None:
        return tm.apply(op, *args)
    x = simplify(x)
    return tm.number("i64", x.value) if x.op == "const" else tm.iota(x, axes.mask(x))


def _index(v: Val) -> Idx | None:
    """The index expression that the i64 value ``v`` is."""
    if v.dtype != "i64" or v.op not in ("iota", "lit"):
        return None
    return v.attr if v.op == "iota" else ix.const(int(tm.from_bits("i64", v.attr)))


def _expression(op: str, left: Idx, right: Idx) -> Idx | None:
    """``op`` of two positions; None where that is no index expression."""
    match op:
        case "add":
            return left + right
        case "sub":
            return left - right
        case "mul" if "const" in (left.op, right.op):
            return left * right
        case "floordiv" if right.op == "const" and right.value > 0:
            return left // right
        case "mod" if right.op == "const" and right.value > 0:
            return left % right
        case "minimum":
            return left.min(right)
        case "maximum":
            return left.max(right)
    return None


_COMPARED: Mapping[str, Callable[[int, int], bool | None]] = {  # by the bounds of the difference; None: undecided
    "lt": lambda low, high: True if high < 0 else False if low >= 0 else None,
    "le": lambda low, high: True if high <= 0 else False if low > 0 else None,
    "gt": lambda low, high: True if low > 0 else False if high <= 0 else None,
    "ge": lambda low, high: True if low >= 0 else False if high < 0 else None,
    "eq": lambda low, high: True if low == high == 0 else False if low > 0 or high < 0 else None,
    "ne": lambda low, high: False if low == high == 0 else True if low > 0 or high < 0 else None,
}
