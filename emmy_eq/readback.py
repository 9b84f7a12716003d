"""egglog's tables as numbered classes of e-nodes.

The numbers must not depend on egglog's ids, so every class gets a digest of its shallowest term (ties go to the smaller
digest): equal terms are in one class, so different classes have different digests.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emmy_eq import encode, ops, signature, terms
from emmy_eq import index as ix
from emmy_eq.egraph import ENode, Report, Saturated, Seam
from emmy_eq.errors import EmmyError
from emmy_eq.terms import AxisTable, Stored, TermProgram, Val, topological


class Inconsistent(EmmyError):
    """Two terms that cannot be equal are in one class: some rule is unsound."""

    def __init__(self, why: str, first: str, second: str) -> None:
        self.why, self.first, self.second = why, first, second
        super().__init__(f"Unsound rules: {why}. Found equal:\n  {first}\n  {second}")


@dataclass(slots=True)
class Tables:
    """Classes keyed by egglog's values, which mean something in one run only."""

    nodes: dict[Any, list[ENode]]
    free: dict[Any, int]
    dtype: dict[Any, int]
    named: dict[str, Any]


def read(tables: Tables, program: TermProgram, encoded: encode.Encoding, report: Report) -> Saturated:
    """The classes that the program's results and seams reach; raises `Inconsistent`."""
    digest, key, order = _digests(tables.nodes, tables.dtype)
    for cls in order:
        _check(cls, tables, digest)
    roots = [tables.named[encoded.names[id(r.val)]] for r in program.results]
    seams = [(name, tables.named[encoded.names[id(v)]], axes) for name, v, axes in program.seams]
    made_of = [[tables.named[encoded.names[id(x)]] for x in _stored(v.attr[0].val)] for _, v, _ in program.seams]
    members = {
        cls: [n for _, n in sorted({key[id(n)]: n for n in nodes if n.op != "count"}.items())] for cls, nodes in tables.nodes.items()
    }
    number = _number([*roots, *(c for _, c, _ in seams), *(c for found in made_of for c in found)], members)
    classes = tuple(tuple(ENode(n.op, tuple(number[c] for c in n.children), n.attr) for n in members[cls]) for cls in number)
    return Saturated(
        classes=classes,
        free=tuple(tables.free[cls] for cls in number),
        dtype=tuple(signature.dtype_of(tables.dtype[cls]) for cls in number),
        roots=tuple(number[c] for c in roots),
        seams=tuple(Seam(name, number[c], axes, tuple(number[x] for x in b)) for (name, c, axes), b in zip(seams, made_of, strict=True)),
        axes=program.axes,
        inputs=program.inputs,
        results=program.results,
        report=replace(report, rows=sum(map(len, classes)), classes=len(classes)),
    )


def _stored(body: Val) -> list[Val]:
    """The stored values that ``body`` reads."""
    loads = (v.attr[0] for v in topological([body], lambda v: v.args) if v.op == "load")
    return [buf.val for buf in loads if isinstance(buf, Stored)]


def tabulate(graph: Any, encoded: encode.Encoding, axes: AxisTable) -> Tables:
    """All of ``graph``; ``count`` members stand beside the literals that `emmy_eq.fold` gives them, and end here."""
    ops_by_constructor = {signature.constructor(name): name for name in ops.ops()}
    cells: dict[Any, Any] = {}

    def cell(sort: str, value: Any) -> Any:
        if sort == "Val":
            return value
        key = (sort, value)
        if key not in cells:
            cells[key] = graph.value_to_i64(value) if sort == "i64" else graph.value_to_string(value)
        return cells[key]

    tables = Tables(defaultdict(list), {}, {}, {})
    for name, function in graph.freeze().functions.items():
        if function.is_let_binding:
            tables.named[name] = function.rows[0].output
        elif name in ("free", "dtype"):
            getattr(tables, name).update((r.inputs[0], graph.value_to_i64(r.output)) for r in function.rows)
        elif function.output_sort == "Val":
            sorts = function.input_sorts
            for row in function.rows:
                values = [cell(sort, v) for sort, v in zip(sorts, row.inputs, strict=True)]
                tables.nodes[row.output].append(_enode(name, values, encoded, axes, ops_by_constructor))
    return tables


def _enode(name: str, cells: Sequence[Any], encoded: encode.Encoding, axes: AxisTable, by_constructor: Mapping[str, str]) -> ENode:
    if name in by_constructor:
        return ENode(by_constructor[name], tuple(cells), None)
    if name == "Lit":
        return ENode("lit", (), cells[1] % (1 << 64))
    if name == "Count":
        return ENode("count", (), cells[1])
    if name == "Iota":
        return ENode("iota", (), encoded.indices[cells[0]][0])
    if name == "Cast":
        return ENode("cast", (cells[1],), None)
    if name == "Read":
        own = tuple(ix.var(a.name) for a in axes.of(cells[1]))
        return ENode("load", (cells[0],), ("stored", cells[1], own))
    if name.startswith("At"):
        return ENode("load", (*cells[4:], cells[0]), ("stored", cells[1], encoded.indices[cells[2]]))
    if name.startswith("Load"):
        return ENode("load", tuple(cells[4:]), (encoded.buffers[cells[0]], encoded.indices[cells[1]]))
    return ENode("scan" if name == "Running" else name.lower(), tuple(cells[1:-1]), (cells[0], cells[-1]))


def by_depth(nodes: Mapping[Any, Sequence[ENode]]) -> Iterator[list[tuple[Any, ENode]]]:
    """Layer by layer, the members all of whose children's classes occurred in earlier layers; a class may occur again later."""
    users: dict[Any, list[tuple[Any, ENode]]] = defaultdict(list)
    missing: dict[int, int] = {}
    layer: list[tuple[Any, ENode]] = []
    for cls, members in nodes.items():
        for node in members:
            children = set(node.children)
            missing[id(node)] = len(children)
            if not children:
                layer.append((cls, node))
            for child in children:
                users[child].append((cls, node))
    known: set[Any] = set()
    while layer:
        yield layer
        new = dict.fromkeys(cls for cls, _ in layer if cls not in known)
        known.update(new)
        layer = []
        for user, node in (use for cls in new for use in users[cls]):
            missing[id(node)] -= 1
            if missing[id(node)] == 0:
                layer.append((user, node))


def _digests(nodes: Mapping[Any, Sequence[ENode]], dtype: Mapping[Any, int]) -> tuple[dict[Any, bytes], dict[int, bytes], list[Any]]:
    """The digest of every class, that of every member by its id, and the classes with children first."""
    digest: dict[Any, bytes] = {}
    members: dict[int, bytes] = {}
    order: list[Any] = []
    for layer in by_depth(nodes):
        found: dict[Any, bytes] = {}
        for cls, node in layer:
            key = members[id(node)] = _node_digest(node, dtype[cls], digest)
            if cls not in digest:
                found[cls] = min(key, found.get(cls, key))
        digest |= found
        order += sorted(found, key=digest.__getitem__)
    return digest, members, order


def _node_digest(node: ENode, bits: int, digest: Mapping[Any, bytes]) -> bytes:
    """``bits``: the dtype of its class, which a literal and a cast do not name themselves."""
    head = f"{node.op} {bits} {_attr(node)}".encode()
    return hashlib.blake2b(b"".join([head, *(digest[c] for c in node.children)]), digest_size=12).digest()


def _attr(node: ENode) -> str:
    """The attribute as text that equal attributes share."""
    if node.op != "load":
        return str(node.attr)
    if node.attr[0] == "stored":
        return f"stored {node.attr[1]:b}[{', '.join(map(ix.show, node.attr[2]))}]"
    buf, idxs = node.attr
    return f"{buf.name}[{', '.join(map(ix.show, idxs))}]"


def _number(roots: Iterable[Any], members: Mapping[Any, Sequence[ENode]]) -> dict[Any, int]:
    """Classes that ``roots`` reach, numbered in breadth-first order over sorted members."""
    number: dict[Any, int] = {}
    queue = list(roots)
    for cls in queue:  # grows while it is read
        if cls in number:
            continue
        number[cls] = len(number)
        queue += (child for node in members[cls] for child in node.children)
    return number


def _check(cls: Any, tables: Tables, digest: Mapping[Any, bytes]) -> None:
    """Raise `Inconsistent` if ``cls`` holds two dtypes or two constants; children come first, so the first is the culprit."""
    members = tables.nodes[cls]
    bits = tables.dtype[cls]
    constants = [n for n in members if n.op == "lit"]
    if bits & (bits - 1) == 0 and len({n.attr for n in constants}) < 2:
        return
    why = "two constants" if bits & (bits - 1) == 0 else f"dtypes {' and '.join(d for d in ops.DTYPES if bits & signature.code(d))}"
    first, *rest = constants if bits & (bits - 1) == 0 else members
    raise Inconsistent(why, _show(first, bits, tables, digest, 4), _show(rest[-1], bits, tables, digest, 4))


def _show(node: ENode, bits: int, tables: Tables, digest: Mapping[Any, bytes], depth: int) -> str:
    """``node``, of a class with dtypes ``bits``, as a term: by the shallowest member of each child; below ``depth`` an ellipsis."""
    if depth == 0:
        return "..."
    if node.op == "lit" and bits & (bits - 1) == 0:
        dtype = signature.dtype_of(bits)
        return f"{dtype}({terms.from_bits(dtype, node.attr)})"
    children = []
    for c in node.children:
        below = tables.dtype[c]
        shallow = next(n for n in tables.nodes[c] if _node_digest(n, below, digest) == digest[c])
        children.append(_show(shallow, below, tables, digest, depth - 1))
    attr = "" if node.attr is None else f"[{_attr(node)}]"
    return f"{node.op}{attr}({', '.join(children)})"
