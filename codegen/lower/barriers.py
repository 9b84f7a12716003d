"""Barriers, put where shared memory needs them: between a write and reads of it, and before it is written again.

Asynchronous copies are not seen here: who issues them puts the barrier after the wait for them (`emmy_eq.codegen.lower.pipeline`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from emmy_eq.codegen import kernel_ir as k


@dataclass(frozen=True, slots=True)
class Pending:
    """Arrays written, and arrays read, since the last barrier."""

    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    def conflicts(self, later: Pending, doubled: frozenset[str]) -> bool:
        """Whether ``later`` accesses must wait for these.  Writes between two barriers never overlap each other."""
        return bool(self.written & later.read or self.read & later.written - doubled)

    def __or__(self, other: Pending) -> Pending:
        return Pending(self.written | other.written, self.read | other.read)


NONE = Pending()


def insert(body: tuple[k.Stmt, ...], doubled: frozenset[str] = frozenset()) -> tuple[k.Stmt, ...]:
    """``body`` with barriers.  ``doubled``: arrays of several buffers, of which readers use one while another is written;
    the barrier between a buffer's writes and its reads also parts its reads from the next writes."""
    return _Inserter(doubled).body(body, NONE)[0]


@dataclass(frozen=True, slots=True)
class _Inserter:
    doubled: frozenset[str]
    loops: dict[int, tuple[k.For, k.For, Pending]] = field(default_factory=dict)  # by id: the loop, with its barriers, what it leaves

    def body(self, body: tuple[k.Stmt, ...], pending: Pending) -> tuple[tuple[k.Stmt, ...], Pending]:
        out: list[k.Stmt] = []
        for s in body:
            if self.first(s, pending):
                out.append(k.Barrier())
                pending = NONE
            if isinstance(s, k.For):
                s, pending = self.loop(s, pending)
            elif s == k.Barrier():
                pending = NONE
            else:
                pending = pending | self.accesses(s)
            out.append(s)
        return tuple(out), pending

    def first(self, s: k.Stmt, pending: Pending) -> bool:
        """Whether ``s`` conflicts with what came before it; of a loop: before any barrier that its own body needs."""
        if not isinstance(s, k.For):
            return pending.conflicts(self.accesses(s), self.doubled)
        return pending.conflicts(self.before_barrier(s), self.doubled)

    def before_barrier(self, s: k.For) -> Pending:
        """What an iteration accesses before its own first barrier."""
        seen = NONE
        for inner in self.loop(s, NONE)[0].body:
            if inner == k.Barrier():
                return seen
            seen = seen | (self.before_barrier(inner) if isinstance(inner, k.For) else self.accesses(inner))
        return seen

    def loop(self, s: k.For, pending: Pending) -> tuple[k.For, Pending]:
        """Barriers within ``s``: the second pass starts from what the first left pending, as the second iteration does.

        Each loop once: its passes, within those of the loops around it, would double with every level of a nest."""
        if id(s) not in self.loops:
            _, after = self.body(s.body, NONE)
            body, after = self.body(s.body, after)
            self.loops[id(s)] = s, replace(s, body=body), after
        _, parted, after = self.loops[id(s)]
        return parted, pending | after

    def accesses(self, s: k.Stmt) -> Pending:
        if isinstance(s, k.Load) and s.space == "shared":
            return Pending(read=frozenset({s.buffer}))
        if isinstance(s, k.Ldmatrix):
            return Pending(read=frozenset({s.shared}))
        if isinstance(s, k.Store) and s.space == "shared":
            return Pending(written=frozenset({s.buffer}))
        if isinstance(s, k.If):
            out = NONE
            for inner in (*s.body, *s.orelse):
                out = out | self.accesses(inner)
            return out
        return NONE
