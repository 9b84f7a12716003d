"""Axes that never meet share an id, where there are more axes than ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from emmy_eq.axes.atoms import Atoms
from emmy_eq.errors import Unsupported
from emmy_eq.tensor_ir import Const, Input, Iota, Program, Reduce, Scan, arguments


def share(program: Program, atoms: Atoms, order: Sequence[int], limit: int) -> list[int]:
    """An id for each axis of ``order``.  Past ``limit``, axes of one extent share one unless they meet.

    Sharing is sound as long as no tensor holds an axis twice (reach 0); the wider reach keeps axes apart in whatever may
    become one kernel, where a name that is both bound and free would stand in the way of rewrites.
    """
    if len(order) <= limit:
        return list(range(len(order)))
    for reach in (4, 2, 1, 0):
        ids = _colour(_meetings(program, atoms, reach), [(a, atoms.extent[a]) for a in order])
        if max(ids) < limit:
            return ids
    raise Unsupported("program", f"more than {limit} loop axes meet in its tensors; compile it in parts")


def _meetings(program: Program, atoms: Atoms, reach: int) -> dict[int, set[int]]:
    """For each axis, those that it must stay apart from: the axes of all that some node is computed from within ``reach`` steps.

    A step is a value that is likely to be stored: a reduction, or one with several readers (such as the residual stream).
    """
    readers = Counter(arg for node in program.nodes for arg in set(arguments(node)))
    near: list[list[frozenset[int]]] = []  # near[node][k]: within k steps
    meets: dict[int, set[int]] = {}
    for n, node in enumerate(program.nodes):
        own = frozenset() if isinstance(node, Input | Const | Iota) else frozenset(atoms.tensor(n))
        if isinstance(node, Reduce | Scan):
            own |= frozenset(atoms.tensor(node.arg))
        levels = [own] * (reach + 1)
        for arg in set(arguments(node)):
            step = int(isinstance(program.nodes[arg], Reduce | Scan) or readers[arg] > 1)
            for k in range(step, reach + 1):
                levels[k] |= near[arg][k - step]
        near.append(levels)
        for a in levels[reach]:
            meets.setdefault(a, set()).update(levels[reach])
    return meets


def _colour(meets: dict[int, set[int]], axes: Sequence[tuple[int, int]]) -> list[int]:
    """Greedy: the first id of the same extent that none of the axis's neighbours has."""
    colour: dict[int, int] = {}
    extents: list[int] = []
    for a, extent in axes:
        taken = {colour[b] for b in meets[a] if b in colour}
        free = next((c for c, e in enumerate(extents) if e == extent and c not in taken), len(extents))
        if free == len(extents):
            extents.append(extent)
        colour[a] = free
    return list(colour.values())
