"""From a program to its axes: splits, unions, ids."""

from __future__ import annotations

from dataclasses import dataclass

from emmy_eq.axes.atoms import Atoms
from emmy_eq.axes.links import links
from emmy_eq.axes.sharing import share
from emmy_eq.axes.splits import Splits
from emmy_eq.tensor_ir import Const, Input, Iota, Program
from emmy_eq.terms import Axis, AxisTable

MAX_AXES = 62


@dataclass(frozen=True, slots=True)
class Axes:
    """``dims[node][dim]``: the atomic axes of that dim, outermost first; none for a dim of extent 1, nor for Input, Const and Iota."""

    table: AxisTable
    dims: tuple[tuple[tuple[Axis, ...], ...], ...]


def infer(program: Program, limit: int = MAX_AXES) -> Axes:
    """The axes of ``program``; raises `Unsupported` where more than ``limit`` would be alive at once.

    An IndexMap must have one reader, and a Reduce or Scan no Input as operand (`to_terms.private_maps` sees to both).
    """
    found = list(links(program))
    splits = Splits(program)
    accepted = splits.adopt(program, found)
    atoms = Atoms(program, splits)
    for link in accepted:
        atoms.unite(link)
    order = atoms.classes(program)
    table = AxisTable()
    axes: list[Axis] = []  # by id
    of: dict[int, Axis] = {}  # by atom class
    for atom, id_ in zip(order, share(program, atoms, order, limit), strict=True):
        if id_ == len(axes):
            axes.append(table.add(atoms.extent[atom]))
        of[atom] = axes[id_]
    ranks = [0 if isinstance(n, Input | Const | Iota) else len(n.shape) for n in program.nodes]
    return Axes(table, tuple(tuple(tuple(of[a] for a in atoms.of(n, d)) for d in range(rank)) for n, rank in enumerate(ranks)))
