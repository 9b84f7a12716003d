"""A program in the names of another, so that a diff of their texts shows what one rewrite changed and nothing else.

Values are numbered in order of appearance, so that one new line renumbers all below it.  Here a value is called as in the other
program where it is the same term, and where it takes another's place: both are stored to one element, or are operands of two values
of which that holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import count

from emmy_eq import index as ix
from emmy_eq.loop_ir.grammar import Axis, Buffer, Carry, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store, changed, walk
from emmy_eq.ops import ops, twists

Head = tuple[object, ...]


def alike(program: Program, model: Program) -> Program:
    """``program`` with the names of ``model``, and its order of statements and of commutative operands as far as that computes the same."""
    left = {b.name: k for k in model.kernels for b in k.outputs}
    kernels = []
    for kernel in program.kernels:
        partner = next((left[b.name] for b in kernel.outputs if b.name in left), None)
        left = {name: k for name, k in left.items() if k is not partner}
        kernels.append(kernel if partner is None else _alike(kernel, partner))
    return replace(program, kernels=tuple(kernels))


def _alike(kernel: Kernel, model: Kernel) -> Kernel:
    axes = _axes(kernel, model)
    body = changed(kernel.body, lambda s: _over(s, axes))
    theirs = _Read()
    theirs.block(model.body, 0)
    mine = _Read(theirs.ids)
    mine.block(body, 0)
    values = _paired(mine, theirs)
    fresh = (name for n in count(len(theirs.made)) if (name := f"v{n}") not in theirs.made)
    values |= {name: next(fresh) for name in mine.made if name not in values}
    body = changed(body, lambda s: _called(s, values, theirs))
    place = {name: n for n, (_, names) in enumerate(theirs.lines) for name in names}
    return Kernel(model.name, _sorted(kernel.inputs, model.inputs), _sorted(kernel.outputs, model.outputs), _ordered(body, place))


def _sorted(buffers: Sequence[Buffer], model: Sequence[Buffer]) -> tuple[Buffer, ...]:
    place = {b.name: n for n, b in enumerate(model)}
    return tuple(sorted(buffers, key=lambda b: place.get(b.name, len(place))))


def _axes(kernel: Kernel, model: Kernel) -> dict[str, str]:
    """New names of the kernel's axes: the model's of the same extents, in order of appearance."""
    left = list(dict.fromkeys(a for s in walk(model.body) if isinstance(s, Loop | Fold) for a in s.axes))
    known = {a.name for a in left}
    fresh = (name for n in count(len(left)) if (name := f"i{n}") not in known)
    names: dict[str, str] = {}
    for axis in dict.fromkeys(a for s in walk(kernel.body) if isinstance(s, Loop | Fold) for a in s.axes):
        same = next((a for a in left if a.extent == axis.extent), None)
        if same is not None:
            left.remove(same)
        names[axis.name] = same.name if same is not None else next(fresh)
    return names


def _over(stmt: Stmt, axes: Mapping[str, str]) -> Stmt:
    """``stmt`` with its axes renamed."""
    to = {old: ix.var(new) for old, new in axes.items()}
    if isinstance(stmt, Loop | Fold):
        return replace(stmt, axes=tuple(Axis(axes[a.name], a.extent) for a in stmt.axes))
    if isinstance(stmt, Load | Store):
        return replace(stmt, index=tuple(ix.substitute(x, to) for x in stmt.index))
    return replace(stmt, attr=ix.substitute(stmt.attr, to)) if stmt.op == "iota" else stmt


@dataclass(slots=True)
class _Read:
    """A kernel's lines, told apart by what they compute instead of by names; ``made``: what each value is, of which operands."""

    ids: dict[Head, int] = field(default_factory=dict)
    made: dict[str, tuple[Head, tuple[str, ...]]] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    lines: list[tuple[Head, tuple[str, ...]]] = field(default_factory=list)
    stores: dict[Head, str] = field(default_factory=dict)

    def block(self, body: Sequence[Stmt], depth: int) -> None:
        for s in body:
            if isinstance(s, Loop):
                self.lines.append(((depth, "loop", s.axes), ()))
                self.block(s.body, depth + 1)
            elif isinstance(s, Fold):
                self.lines.append(((depth, "fold", s.axes), ()))
                self.block(s.body, depth + 1)
                for carry in s.carries:
                    self.carry(carry, s.axes, depth + 1)
                self.block(s.observer, depth + 1)
            elif isinstance(s, Store):
                self.stores[s.buffer, s.index] = s.value
                self.lines.append(((depth, s.buffer, s.index, self.keys[s.value]), ()))
            else:
                head = ("load", s.buffer, s.index) if isinstance(s, Load) else (s.op, s.dtype, s.attr)
                self.value(s.name, head, s.indices if isinstance(s, Load) else s.args)
                self.lines.append(((depth, self.keys[s.name]), (s.name,)))

    def carry(self, c: Carry, axes: tuple[Axis, ...], depth: int) -> None:
        """The key of a twist is the reduction that it is by itself."""
        twisted = c.kind == "twist"
        self.value(c.results[0], ("fold", axes, twists()[c.name].key if twisted else c.name), c.args[:1])
        for v, result in zip(c.args[1:], c.results[1:], strict=True):
            self.value(result, ("twist", axes, c.name), (c.args[0], v))
        self.lines.append(((depth, "carry", *(self.keys[r] for r in c.results)), c.results))

    def value(self, name: str, head: Head, args: tuple[str, ...]) -> None:
        self.made[name] = head, args
        keys = [self.keys[a] for a in args]
        self.keys[name] = self.ids.setdefault((head, *(sorted(keys) if _commutes(head) else keys)), len(self.ids))


def _commutes(head: Head) -> bool:
    return head[0] in ops() and ops()[str(head[0])].commutative


def _paired(mine: _Read, theirs: _Read) -> dict[str, str]:
    """Values of the one that are called as values of the other: in equal lines, then equal terms, then those in an equal place."""
    to: dict[str, str] = {}
    matcher = SequenceMatcher(None, [line for line, _ in mine.lines], [line for line, _ in theirs.lines], autojunk=False)
    for block in matcher.get_matching_blocks():
        for n in range(block.size):
            to |= dict(zip(mine.lines[block.a + n][1], theirs.lines[block.b + n][1], strict=True))
    taken = set(to.values())
    for name, key in mine.keys.items():
        same = next((t for t, k in theirs.keys.items() if k == key and t not in taken), None) if name not in to else None
        if same is not None:
            to[name] = same
            taken.add(same)
    queue = [(value, theirs.stores[where]) for where, value in mine.stores.items() if where in theirs.stores]
    for value, other in queue:
        if value not in to and other not in taken:
            to[value] = other
            taken.add(other)
            queue += _operands(mine, theirs, value, other, to, taken)
    return to


def _operands(mine: _Read, theirs: _Read, value: str, other: str, to: Mapping[str, str], taken: set[str]) -> Iterator[tuple[str, str]]:
    """Operands in one place of two values that are made alike: the n-th, or where they commute the one operation, or the one left."""
    (head, args), (others_head, others) = mine.made[value], theirs.made[other]
    if head == others_head and not _commutes(head):
        yield from zip(args, others, strict=True)
        return
    new, left = [a for a in args if a not in to], [o for o in others if o not in taken]
    for a in tuple(new):
        same = next((o for o in left if mine.made[a][0] == theirs.made[o][0]), None)
        if same is not None:
            new.remove(a)
            left.remove(same)
            yield a, same
    if head == others_head and len(new) == len(left) == 1:
        yield new[0], left[0]


def _called(stmt: Stmt, to: Mapping[str, str], theirs: _Read) -> Stmt:
    """``stmt`` with its values renamed; operands that commute stand as in the value of its new name."""
    match stmt:
        case Loop():
            return stmt
        case Fold():
            renamed = (replace(c, args=_all(c.args, to), results=_all(c.results, to)) for c in stmt.carries)
            return replace(stmt, carries=tuple(renamed))
        case Store():
            return replace(stmt, value=to[stmt.value])
        case Load():
            return replace(stmt, name=to[stmt.name], indices=_all(stmt.indices, to))
    name, args = to[stmt.name], _all(stmt.args, to)
    if name in theirs.made and _commutes((stmt.op,)):
        order = theirs.made[name][1]
        args = tuple(sorted(args, key=lambda a: (order.index(a), 0) if a in order else (args.index(a), 1)))
    return replace(stmt, name=name, args=args)


def _all(names: Sequence[str], to: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(to[n] for n in names)


def _ordered(body: tuple[Stmt, ...], place: Mapping[str, int]) -> tuple[Stmt, ...]:
    """The statements in the order of their values' ``place``, each after what it needs; folds, loops and stores do not pass each other."""
    waiting: list[tuple[int, Stmt]] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            stmt = replace(stmt, body=_ordered(stmt.body, place))
        elif isinstance(stmt, Fold):
            stmt = replace(stmt, body=_ordered(stmt.body, place), observer=_ordered(stmt.observer, place))
        places = [place[name] for s in walk((stmt,)) for name in _defined(s) if name in place]
        waiting.append((min(places) if places else waiting[-1][0] if waiting else -1, stmt))
    out: list[Stmt] = []
    while waiting:
        missing = {name for _, s in waiting for name in _defined(s)}
        first = next((s for _, s in waiting if not isinstance(s, Let | Load)), None)
        ready = [w for w in waiting if not missing & _needed(w[1]) and (isinstance(w[1], Let | Load) or w[1] is first)]
        chosen = min(ready, key=lambda w: w[0])
        waiting.remove(chosen)
        out.append(chosen[1])
    return tuple(out)


def _defined(stmt: Stmt) -> tuple[str, ...]:
    """What the statements after ``stmt`` in its block may use of it."""
    if isinstance(stmt, Let | Load):
        return (stmt.name,)
    return tuple(r for c in stmt.carries for r in c.results) if isinstance(stmt, Fold) else ()


def _needed(stmt: Stmt) -> set[str]:
    """Names that ``stmt`` and what is inside of it use, less what they define."""
    inner = list(walk((stmt,)))
    used = {a for s in inner for a in _used(s)}
    return used - {name for s in inner for name in _defined(s)}


def _used(stmt: Stmt) -> tuple[str, ...]:
    match stmt:
        case Let():
            return stmt.args
        case Load():
            return stmt.indices
        case Store():
            return (stmt.value,)
        case Fold():
            return tuple(a for c in stmt.carries for a in c.args)
    return ()
