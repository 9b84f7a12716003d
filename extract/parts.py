"""Deep programs in parts: between two *waists* stands a layer, and equal layers are planned once.

A waist is a value that all below it is needed for only through it, and that is read twice, as a residual stream is: it is
stored in every plan worth having, so that what is above and what is below can be planned apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from emmy_eq.extract.climb import Job, Met, Search
from emmy_eq.extract.merge import Planned
from emmy_eq.extract.twins import Twin, ranks, transferred, twin

FEWEST = 3  # waists; a program with fewer is planned as a whole


def waists(finder: Search) -> tuple[int, ...]:
    """The waists, lowest first; none where a program is shallow."""
    if len(finder.graph.cuts) < FEWEST:
        return ()
    import networkx as nx  # imported here: it takes longer than all else in a small compile

    above = nx.DiGraph()
    queue = list(dict.fromkeys(c for c, _ in finder.roots))
    above.add_edges_from((-1, c) for c in queue)
    for c in queue:
        below = sorted(finder.seen(c))
        queue += [x for x in below if x not in above]
        above.add_edges_from((c, x) for x in below)
    top = nx.immediate_dominators(above, -1)
    tree = nx.DiGraph((top[c], c) for c in above if c != -1)
    visits = list(nx.dfs_labeled_edges(tree, -1))
    begin = {c: n for n, (_, c, kind) in enumerate(visits) if kind == "forward"}
    end = {c: n for n, (_, c, kind) in enumerate(visits) if kind == "reverse"}
    roots = {c for c, _ in finder.roots}
    dear = [c for c in finder.graph.cuts if c in above and c not in roots and c not in finder.pinned and above.in_degree(c) > 1]

    def dominates(c: int, x: int) -> bool:
        return begin[c] <= begin[x] <= end[c]

    def dominates_all(c: int) -> bool:
        """Stops at the first value below that is needed elsewhere: most candidates have one near."""
        return all(dominates(c, x) for _, x in nx.bfs_edges(above, c) if finder.graph.dear[x])

    found = [c for c in dear if dominates_all(c)]
    free = finder.sat.free
    commonest = Counter(free[c] for c in found).most_common(1)  # within the first layer, more values dominate what is below
    stream = [c for c in found if free[c] == commonest[0][0]]
    stream.sort(key=lambda c: -begin[c])
    return tuple(stream) if len(stream) >= FEWEST else ()


def in_parts(finder: Search, between: Sequence[int]) -> list[Planned] | None:
    """Finished kernels of the plan that stores the waists ``between``, launch order; None where a part has no plan."""
    leaves = frozenset(between)
    rank = ranks(finder.graph, leaves)
    done: list[Planned] = []
    solved: list[tuple[int, tuple[Planned, ...]]] = []
    for goals in [*([finder.home(c)] for c in between), list(finder.roots)]:
        alike = _solved(finder, goals, solved, leaves, rank)
        if alike is not None:
            done += _moved(finder, *alike, first=len(done))
            continue
        kernels = finder.part(goals, leaves)
        if kernels is None:
            return None
        made = tuple(finder.finished(len(done) + n, k) for n, k in enumerate(kernels))
        done += made
        solved += [(goals[0][0], made)] if _plain(finder, goals) else []
    stored = tuple(sorted({o.buffer for k in done for o in k.outputs} - {r.name for r in finder.sat.results}))
    costs = [k.cost for k in done]
    flops = sum(sum(c.flops.values()) for c in costs)
    whole = Met(stored, len(done), sum(c.seconds for c in costs), flops, sum(c.bytes for c in costs))
    finder.met = {frozenset(finder.roots): whole}  # of the parts' own plans none is one of the program
    return done


def _plain(finder: Search, goals: Sequence[Job]) -> bool:
    """Whether a part has one result, stored as its value is."""
    (cls, mask), *others = goals
    return not others and finder.sat.free[cls] == mask and len(finder.roots.get(goals[0], [0])) == 1


def _solved(
    finder: Search,
    goals: Sequence[Job],
    solved: Sequence[tuple[int, tuple[Planned, ...]]],
    leaves: frozenset[int],
    rank: Sequence[bytes],
) -> tuple[Twin, tuple[Planned, ...]] | None:
    if not _plain(finder, goals):
        return None
    for root, kernels in solved:
        found = twin(finder.graph, root, goals[0][0], leaves, rank)
        if found is not None and _same_orders(finder, found):
            return found, kernels
    return None


def _same_orders(finder: Search, t: Twin) -> bool:
    """Whether what may be stored has its axes in the same order in memory."""
    stored = [(finder.names[a], finder.names[b]) for a, b in t.classes.items() if a in finder.names and b in finder.names]
    return all([t.axes[x.id] for x in finder.orders[a]] == list(finder.orders[b]) for a, b in stored)


def _moved(finder: Search, t: Twin, kernels: Sequence[Planned], first: int) -> list[Planned]:
    names = {finder.names[a]: finder.names[b] for a, b in t.classes.items() if a in finder.names and b in finder.names}
    called = [finder.called(first + n, names[k.outputs[-1].buffer]) for n, k in enumerate(kernels)]
    return [transferred(k, name, finder.graph, t, names) for k, name in zip(kernels, called, strict=True)]
