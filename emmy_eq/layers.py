"""Deep programs as chains of layers: equal ones are one program, which is saturated and planned once.

A *waist* is a tensor that is read twice, as a residual stream is, and beside which nothing is alive that took a reduction, unless it
is so beside every waist.  Waists are stored in every plan worth having, so that a program is cut there before anything else is done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from emmy_eq.tensor_ir import Const, Elementwise, IndexMap, Input, Iota, Node, Output, Program, Reduce, Scan, arguments, renumber, total

FEWEST = 3  # waists; a program with fewer is planned as a whole


@dataclass(frozen=True, slots=True)
class Layer:
    """Number ``kind`` of the programs; ``names``: of its inputs, tensors and results (``out0``, ...) in the whole program."""

    kind: int
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Layers:
    """``kinds``: programs, each with the pins of its tensors; ``chain``: in order."""

    kinds: tuple[tuple[Program, Mapping[str, str]], ...]
    chain: tuple[Layer, ...]


def split(program: Program, pins: Mapping[str, str]) -> Layers | None:
    """The layers of ``program``; None where it has too few waists, or where a pin is of a waist or of no tensor."""
    beside, waists = _waists(program)
    stored = sorted({*beside, *waists})
    if len(waists) < FEWEST or not pins.keys() <= set(program.names) - {program.names[n] for n in stored}:
        return None
    called = {o.node: f"out{k}" for k, o in reversed([*enumerate(program.outputs)])}
    kinds: dict[object, tuple[int, list[int], Program, Mapping[str, str]]] = {}
    chain: list[Layer] = []
    for after, last in pairwise((-1, *waists, len(program.nodes))):
        results = {f"out{k}": o.node for k, o in enumerate(program.outputs) if after < o.node <= last}
        results |= {program.names[n]: n for n in stored if after < n <= last and n not in results.values()}
        if not results:
            continue
        goals, known = tuple(results.values()), frozenset(n for n in stored if n <= after)
        nodes = list(_below(program, goals, known))
        own = {program.names[n]: pins[program.names[n]] for n in nodes if program.names[n] in pins}
        shape = _part(program, nodes, goals, known)
        pinned = tuple((i, own[name]) for i, name in enumerate(shape.names) if name in own)
        key = (tuple(replace(n, name="") if isinstance(n, Input) else n for n in shape.nodes), shape.outputs, pinned)
        if key not in kinds:
            kinds[key] = len(kinds), nodes, _part(program, sorted(nodes), goals, known), own
        kind, first, _, _ = kinds[key]
        names = {
            program.names[a]: called.get(b, program.names[b]) if b in known else program.names[b] for a, b in zip(first, nodes, strict=True)
        }
        chain.append(Layer(kind, names | {f"out{k}": name for k, name in enumerate(results)}))
    return Layers(tuple((part, own) for _, _, part, own in kinds.values()), tuple(chain))


def _below(program: Program, goals: Sequence[int], known: Set[int]) -> Iterator[int]:
    """The nodes that ``goals`` are computed from, given ``known``, arguments first; their order is that of the structure."""
    done: set[int] = set()
    stack = [(g, False) for g in reversed(goals)]
    while stack:
        n, ready = stack.pop()
        if n in done:
            continue
        if ready or n in known:
            done.add(n)
            yield n
            continue
        stack.append((n, True))
        stack += [(a, False) for a in reversed(arguments(program.nodes[n]))]


def _part(program: Program, nodes: Sequence[int], goals: Sequence[int], known: Set[int]) -> Program:
    """The program of ``nodes``, in which ``known`` are inputs."""
    at = {n: i for i, n in enumerate(nodes)}

    def node(n: int) -> Node:
        old = program.nodes[n]
        return Input(program.names[n], old.shape, old.dtype) if n in known else renumber(old, at)

    names, sources = (tuple(texts[n] for n in nodes) for texts in (program.names, program.sources))
    return Program(tuple(map(node, nodes)), tuple(Output(at[g]) for g in goals), names, sources)


def _waists(program: Program) -> tuple[frozenset[int], list[int]]:
    """What is alive beside all of the waists, and the waists in order."""
    readers: list[set[int]] = [set() for _ in program.nodes]
    for n, node in enumerate(program.nodes):
        for a in arguments(node):
            readers[a].add(n)
    expiring: dict[int, list[int]] = defaultdict(list)
    for n, users in enumerate(readers):
        if users:
            expiring[max(users)].append(n)
    dear = _dear(program)
    alive: set[int] = set()
    cheap: Counter[object] = Counter()  # of each shape and dtype: what enters the first layer is no waist, nor is anything beside it
    found: dict[object, tuple[frozenset[int], list[int]]] = {}
    for n, node in enumerate(program.nodes):
        kind = (node.shape, node.dtype)
        for x in expiring[n]:
            alive.discard(x)
            cheap[program.nodes[x].shape, program.nodes[x].dtype] -= not dear[x] and _moves(program.nodes[x])
        if dear[n] and readers[n]:
            alive.add(n)
        cheap[kind] += bool(readers[n]) and not dear[n] and _moves(node)
        if isinstance(node, Elementwise) and dear[n] and len(readers[n]) > 1 and not cheap[kind]:
            beside = frozenset(alive - {n})
            found.setdefault((kind, beside), (beside, []))[1].append(n)
    beside, candidates = max(found.values(), key=lambda f: len(f[1]), default=(frozenset[int](), []))
    return beside, _apart(candidates, _products(program))


def _moves(node: Node) -> bool:
    """Whether ``node`` depends on what the program is called with."""
    return not isinstance(node, Const | Iota) and not (isinstance(node, Input) and node.constant)


def _dear(program: Program) -> list[bool]:
    """Which nodes took a reduction or a scan."""
    dear: list[bool] = []
    for node in program.nodes:
        dear.append(isinstance(node, Reduce | Scan) or any(dear[a] for a in arguments(node)))
    return dear


def _products(program: Program) -> list[int]:
    """The matrix products: sums of products of values that both have fewer elements than the product."""
    elements: list[int] = []  # apart from repetitions
    for node in program.nodes:
        below = [elements[a] for a in arguments(node)]
        elements.append(max(below) if isinstance(node, Elementwise | IndexMap) else total(node.shape))
    found = []
    for n, node in enumerate(program.nodes):
        product = program.nodes[node.arg] if isinstance(node, Reduce) and node.op == "sum" else None
        if isinstance(product, Elementwise) and product.op == "mul" and all(elements[a] < total(product.shape) for a in product.args):
            found.append(n)
    return found


def _apart(candidates: Sequence[int], products: Sequence[int]) -> list[int]:
    """Those of ``candidates`` that have a matrix product between them and the one before: less is no layer."""
    kept: list[int] = []
    for n in candidates:
        if any((kept[-1] if kept else -1) < p < n for p in products):
            kept.append(n)
    return kept
