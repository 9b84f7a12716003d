"""The canonical order of commutative operands: it depends on what a value is and where it is used, never on names.

Two readings from below (what a value is made of) and one from above (what uses it) tell apart all but true symmetries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

from emmy_eq import terms as tm
from emmy_eq.extract.nest import Output
from emmy_eq.ops import ops
from emmy_eq.terms import Val


def operand_order(outputs: Sequence[Output], access: Mapping[Val, str]) -> Callable[[Val], Sequence[Val]]:
    """A function from a value to its operands in canonical order.

    ``access`` says of every load where it reads, and of every iota what it counts, in words that do not name axes or buffers.
    """
    values = list(tm.topological([o.val for o in outputs]))
    notes = {v: _note(v, access) for v in values}
    below = _from_below(values, notes, {})
    above = _from_above(values, below, outputs)
    uses: dict[str, list[int]] = {}
    for v in values:
        if v.op == "load":
            uses.setdefault(v.attr[0].name, []).append(above[v])
    buffers = {name: str(_hash(*sorted(found))) for name, found in uses.items()}
    below = _from_below(values, notes, buffers)

    def operands(v: Val) -> Sequence[Val]:
        return sorted(v.args, key=lambda a: (below[a], above[a])) if _commutes(v) else v.args

    return operands


def _hash(*parts: object) -> int:
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def _commutes(v: Val) -> bool:
    return v.op in ops() and ops()[v.op].commutative


def _note(v: Val, access: Mapping[Val, str]) -> str:
    """What a value is apart from its operands."""
    if v.op in ("load", "iota"):
        return f"{v.op} {v.dtype} {access[v]}"
    if v.op == "lit":
        return f"lit {v.dtype} {v.attr}"
    return f"{v.op} {v.dtype} {v.attr[0] if v.attr is not None else ''}"


def _from_below(values: Sequence[Val], notes: Mapping[Val, str], buffers: Mapping[str, str]) -> dict[Val, int]:
    out: dict[Val, int] = {}
    for v in values:
        args = [out[a] for a in v.args]
        alike = [v.args.index(a) for a in v.args]  # x + x is not x + y
        extra = buffers.get(v.attr[0].name, "") if v.op == "load" else ""
        out[v] = _hash(notes[v], extra, sorted(args) if _commutes(v) else args, alike)
    return out


def _from_above(values: Sequence[Val], below: Mapping[Val, int], outputs: Sequence[Output]) -> dict[Val, int]:
    found: dict[Val, list[int]] = {v: [] for v in values}
    for output in outputs:
        found[output.val].append(0)
    out: dict[Val, int] = {}
    for v in reversed(values):
        out[v] = _hash(*sorted(found[v]))
        for n, a in enumerate(v.args):
            found[a].append(_hash(below[v], out[v], 0 if _commutes(v) else n))
    return out
