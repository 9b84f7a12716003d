"""What a class always stands on: ``must(c)`` are the classes that every acyclic choice for c has below it, c among them.

Greatest fixpoint of must(c) = {c} | the meet over c's nodes of the join over their children, started at "everything" and taken
along a derivation; a set of classes is the bits of one integer.  It is to an e-graph what dominators are to a flow graph.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence


def must_sets(children: Sequence[Collection[int]], members: Sequence[Sequence[int]], order: Sequence[int], until: float) -> list[int]:
    """``must`` of every class in ``order``, which lists classes so that one node of each stands on earlier ones; -1 for others.

    Each class alone, which is true but says nothing, if it takes longer than to ``until``, a time of perf_counter.
    """
    must = [-1] * len(members)  # all bits
    users: list[set[int]] = [set() for _ in members]
    for cls in order:
        for node in members[cls]:
            for child in children[node]:
                users[child].add(cls)
    pending = deque(order)
    waiting = set(order)
    while pending:
        if time.perf_counter() > until:
            return [1 << cls for cls in range(len(members))]
        cls = pending.popleft()
        waiting.discard(cls)
        meet = -1
        for node in members[cls]:
            below = below_node(children[node], must)
            if not below >> cls & 1 or below == -1:  # a node above its own class derives nothing
                meet &= below
        new = meet | 1 << cls
        if new != must[cls]:
            must[cls] = new
            for user in users[cls]:
                if user not in waiting:
                    waiting.add(user)
                    pending.append(user)
    return must


def below_node(children: Collection[int], must: Sequence[int]) -> int:
    """What a choice of a node with these children always stands on; -1 where a child has no derivation."""
    out = 0
    for child in children:
        out |= must[child]
    return out


def bits(mask: int) -> Iterator[int]:
    """The set bits of a mask, highest first."""
    while mask:
        top = mask.bit_length() - 1
        yield top
        mask ^= 1 << top
