"""Partial states held by different threads of a block become one: shuffles over lanes, shared memory over warps."""

from __future__ import annotations

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import access
from emmy_eq.codegen.lower.builder import Builder
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment, Scope
from emmy_eq.codegen.lower.states import Parts, State, tree
from emmy_eq.index import Idx

WARP = 32


def across(b: Builder, state: State, parts: Parts, maps: Scope) -> Parts:
    """Each thread's partial state over the axes of ``maps`` merged over the threads that share them; all get the result."""
    lanes = [bit for m in maps.values() for bit in _bits(m.bits) if bit < WARP]
    for bit in lanes:
        parts = state.merge(b, parts, tuple(shuffle(b, p, bit) for p in parts))
    for m in maps.values():
        if m.bits >= WARP:
            parts = _over_warps(b, state, parts, m, _lanes(maps))
    return parts


def _bits(mask: int) -> list[int]:
    return [1 << n for n in range(mask.bit_length()) if mask >> n & 1]


def _lanes(maps: Scope) -> int:
    out = 0
    for m in maps.values():
        out |= m.bits & (WARP - 1)
    return out


def shuffle(b: Builder, frag: Fragment, bit: int) -> Fragment:
    """``frag`` of the thread whose number differs in ``bit``."""
    out: dict[k.Atom, k.Atom] = {}
    for atom in frag.atoms:
        if atom in out:
            continue
        if isinstance(atom, k.Lit):
            out[atom] = atom
            continue
        name = b.fresh("v")
        b.emit(k.Shuffle(name, frag.dtype, atom, "xor", ix.const(bit)))
        out[atom] = name
    return Fragment(frag.axes, frag.counts, tuple(out[a] for a in frag.atoms), frag.dtype)


def without(b: Builder, bits: int) -> tuple[Idx, int]:
    """The thread number with ``bits`` taken out and the rest pushed together, and how many numbers that leaves."""
    out, place, bit = ix.const(0), 1, 1
    while bit < b.threads:
        size = 1
        while bit * size < b.threads and not bits & (bit * size):
            size *= 2
        if size > 1:
            out = out + (TID // bit % size) * place
            place *= size
        bit *= max(size, 2)
    return b.simplify(out), place


def _over_warps(b: Builder, state: State, parts: Parts, m: AxisMap, lanes: int) -> Parts:
    """Every warp of ``m`` leaves its part in shared memory; every thread merges them in the same order."""
    stride = max(m.stride, WARP)
    warps = m.stride * m.threads // stride
    mine, slots = without(b, lanes | (warps - 1) * stride)
    found: list[list[Fragment]] = []
    for p in parts:
        array = b.array(p.dtype, slots * warps * len(p.atoms))
        leader = access.owner(b, ~lanes)
        for n, atom in enumerate(p.atoms):
            at = b.simplify((mine + n * slots) * warps + TID // stride % warps)
            b.emit(k.Store((atom,), p.dtype, "shared", array, at, leader))
        found.append(_gather(b, array, p, mine, slots, warps))
    return tree(b, state, [tuple(f[w] for f in found) for w in range(warps)])


def _gather(b: Builder, array: str, p: Fragment, mine: Idx, slots: int, warps: int) -> list[Fragment]:
    """The parts of all warps, read as vectors."""
    width = min(warps, access.widest(p.dtype))
    atoms: list[list[k.Atom]] = [[] for _ in range(warps)]
    for n in range(len(p.atoms)):
        for first in range(0, warps, width):
            names = tuple(b.fresh("v") for _ in range(width))
            b.emit(k.Load(names, p.dtype, "shared", array, b.simplify((mine + n * slots) * warps + first)))
            for w, name in enumerate(names):
                atoms[first + w].append(name)
    return [Fragment(p.axes, p.counts, tuple(a), p.dtype) for a in atoms]
