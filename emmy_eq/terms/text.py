"""Text of terms, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from emmy_eq.ops import ops
from emmy_eq.terms.grammar import AxisTable, Stored, TermProgram, Val, from_bits, topological


def show(x: TermProgram | Val) -> str:
    """Text for people, one line a stored tensor: ``name[axes] = body``.  A `Val` by itself names its axes a0, a1, ... by id."""
    return _Printer(x.axes).program(x) if isinstance(x, TermProgram) else _Printer(AxisTable()).val(x)


class _Printer:
    def __init__(self, axes: AxisTable) -> None:
        self.axes = axes
        self.names: dict[Stored, str] = {}
        self.orders: dict[Stored, list[int]] = {}  # memory order, as positions among the ascending axes
        self.lets: dict[Val, str] = {}
        self.lines: list[str] = []

    def program(self, p: TermProgram) -> str:
        self.lines.append("axes " + ", ".join(f"{a.name}={a.extent}" for a in self.axes.axes))
        self.lines.extend(f"input {b.name}: {b.dtype}{list(b.shape)}" for b in p.inputs)
        for name, load, order in p.seams:
            self.define(load.attr[0], name, [a.id for a in order])
        for load, again in p.equalities:
            left = self.text(load)
            self.share([again])
            self.lines.append(f"equal {left} = {self.text(again)}")
        by_value = {id(s.val): s for s in reversed(self.names)}
        for r in p.results:
            stored = by_value.get(id(r.val))
            body = self.names[stored] if stored is not None else self.text(r.val)
            alias = f" in {r.alias}" if r.alias is not None else ""
            self.lines.append(f"{r.name}{alias}: {r.val.dtype}{list(r.shape)} over [{self.axis_names([a.id for a in r.axes])}] = {body}")
        return "\n".join(self.lines)

    def val(self, v: Val) -> str:
        for term in topological([v]):
            if term.op == "load" and isinstance(term.attr[0], Stored) and term.attr[0] not in self.names:
                self.define(term.attr[0], f"t{len(self.names)}", self.ids(term.attr[0].mask))
        self.share([v])
        return "\n".join([*self.lines, self.text(v)])

    def define(self, stored: Stored, name: str, order: Sequence[int]) -> None:
        self.share([stored.val])
        self.lines.append(f"{name}[{self.axis_names(order)}]: {stored.val.dtype} = {self.text(stored.val)}")
        self.names[stored] = name
        self.orders[stored] = [self.ids(stored.mask).index(i) for i in order]

    def share(self, roots: Sequence[Val]) -> None:
        """A line of its own for every compound term that is used twice below ``roots``."""
        order = list(topological(roots, lambda v: v.args))
        uses = Counter(a for v in order for a in v.args)
        for v in order:
            if uses[v] > 1 and v.args and v not in self.lets:
                text = self.text(v)
                self.lets[v] = f"v{len(self.lets)}"
                self.lines.append(f"  {self.lets[v]} = {text}")

    def ids(self, mask: int) -> list[int]:
        return [i for i in range(mask.bit_length()) if mask >> i & 1]

    def axis_names(self, ids: Sequence[int]) -> str:
        known = {a.id: a.name for a in self.axes.axes}
        return ", ".join(known.get(i, f"a{i}") for i in ids)

    def text(self, v: Val, nested: bool = False) -> str:
        if v in self.lets:
            return self.lets[v]
        if v.op == "lit":
            return f"{v.dtype}({from_bits(v.dtype, v.attr)})"
        if v.op == "iota":
            return f"iota({v.attr})"
        if v.op == "load":
            return self.load(v)
        symbol = ops()[v.op].symbol if v.op in ops() else None
        if symbol is not None and len(v.args) == 2:
            text = f"{self.text(v.args[0], True)} {symbol} {self.text(v.args[1], True)}"
            return f"({text})" if nested else text
        name = v.dtype if v.op == "cast" else v.op
        if v.op in ("reduce", "argreduce", "scan", "twist"):
            name = f"{'scan ' if v.op == 'scan' else ''}{v.attr[0]}{{{self.axis_names(self.ids(v.attr[1]))}}}"
        return f"{name}({', '.join(self.text(a) for a in v.args)})"

    def load(self, v: Val) -> str:
        buf, idxs = v.attr
        if isinstance(buf, Stored):
            idxs = [idxs[k] for k in self.orders[buf]]
        where = ", ".join(map(str, idxs)) + "".join(f"; g{k} = {self.text(g)}" for k, g in enumerate(v.args))
        return f"{self.names[buf] if isinstance(buf, Stored) else buf.name}[{where}]"
