"""A schedule row: how each axis of a kernel is divided over blocks, serial steps, threads, registers and vector lanes.

    WORK=t256.b2 TILE=i0:r2.t16.v4,i1:r2.t16.v4 REDUCE=i2:s.r16 STAGE=2:shared RASTER=row

``WORK`` is the threads of a block, and the blocks for which an SM must have registers.  ``t256.p132``: of 132 blocks, each of which
takes one tile of results after another (persistent blocks), so that the next tile's operands come while results leave.
``TILE`` splits the axes of the outer loops, ``REDUCE`` the axes that folds bind (and inner loops over them).  The parts
of a split are written outermost to innermost, and an element's coordinate is

    (((block*steps + step)*r + reg)*threads + thread)*v + lane of the vector

so that neighbouring threads touch neighbouring vectors, and a thread's registers lie ``threads*v`` apart.

    b   blocks.     TILE: always as many as needed, not written.  REDUCE: ``b8`` splits the fold over 8 blocks.
    s   steps of a serial loop.  TILE: ``s4``.  REDUCE: ``s`` as many as needed; left out, one step must do.
    r   registers.  t  threads.  w  threads, above every ``t`` part (whole warps).  v  vector lanes.

A row may give products to the tensor cores, 16 x 8 results and 16 products each at a time (8 of 32-bit operands):

    WORK=t256 TILE=i0:w2.r4.m16,i1:w4.r4.n8 REDUCE=i2:s.r2.k16 STAGE=3:async RASTER=row

    m16 n8 k16   the axis's part of the tensor core's step, spread over the lanes of a warp as mma.sync demands.  ``w`` and ``r``
                 are then warps and steps: coordinate ((block*steps + step)*w + warp)*r*16 + reg*16 + row, so a warp's rows are adjacent.
    k8 k8x3      f32 operands in place of 16-bit ones: rounded to tf32, or each as the sum of two tf32 values, whose three large
                 products are summed (`emmy_eq.codegen.lower.tf32`).

Attention has two: ``k16`` of the keys is n of the product inside and k of the one outside, since both lie in the same registers.

    WORK=t128 TILE=i1:w4.r2.m16,i2:r16.n8 REDUCE=i3:s.r4.k16,i4:r8.k16 STAGE=2:async RASTER=late

``STAGE`` is how operands come to the threads that share them: ``1:shared``, ``2:shared`` through registers to one or two buffers in
shared memory; ``2:async`` to ``4:async`` by cp.async into so many buffers, where an operand is loaded as it is, in aligned vectors;
``2:tma`` to ``8:tma`` by the copy engine, which a warp beside those of WORK asks for whole boxes.  Warpgroups then multiply them where
they lie (wgmma): four warps along m are one, and its columns are one step of up to 256.  Attention's weights are its left operand in
registers:

    WORK=t256 TILE=i1:w8.m16,i2:r16.n8 REDUCE=i3:s.r8.k16,i4:r8.k16 STAGE=2:tma RASTER=late8

f32 values (k8x3) are split by a warpgroup beside.

``RASTER`` is the order in which blocks start.  ``row``: the last axis of the outer loops fastest.  ``g8``: 8 blocks along the
second last axis with more than one block, then one along the last, so that blocks that run together share operands in L2.
``late``: the first axis fastest and all from their ends: under a causal mask the blocks with most keys start first.  ``late8``: so
for 8 blocks along all axes but the last with more than one block, then for 8 more: heads whose keys stay in L2.
Blocks that take several tiles (``p``) take them in that order, under ``late`` every other round from its end.

Threads: the ``w`` parts are the slowest digits of the thread number, then the TILE axes in the order written, then the
REDUCE axes, whose ``t`` parts always end at the fastest digit.  Where TILE alone fills WORK, a REDUCE ``t`` part
lies over the fastest TILE digits, and the fold's operands change their layout through shared memory (attention).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from emmy_eq.errors import InvalidInput

MAX_THREADS = 1024
DEPTHS = {"shared": (1, 2), "async": (2, 3, 4), "tma": (2, 3, 4, 5, 6, 7, 8)}  # buffers by path
WARP = 32
ATOMS = {"m16": 16, "n8": 8, "k16": 16, "k8": 8, "k8x3": 8}  # elements of mma.sync's step along one of its axes
WARPGROUP = 128  # threads that wgmma takes together


@dataclass(frozen=True, slots=True)
class Split:
    """One axis.  ``steps`` 0 means as many as needed."""

    blocks: int = 1
    steps: int = 1
    regs: int = 1
    threads: int = 1
    slow: bool = False  # the threads are whole warps, spelled w
    vector: int = 1
    atom: str = ""  # of `ATOMS`: the axis of mma.sync that this is

    @property
    def tile(self) -> int:
        """Elements that one step of one block covers."""
        return self.regs * self.threads * self.vector * ATOMS.get(self.atom, 1)

    def __str__(self) -> str:
        parts = [f"b{self.blocks}"] if self.blocks > 1 else []
        if self.steps != 1:
            parts.append(f"s{self.steps}" if self.steps else "s")
        regs = [f"r{self.regs}"] if self.regs > 1 else []
        threads = [f"{'w' if self.slow else 't'}{self.threads}"] if self.threads > 1 else []
        parts += threads + regs if self.atom else regs + threads
        if self.vector > 1:
            parts.append(f"v{self.vector}")
        return ".".join([*parts, *filter(None, [self.atom])]) or "r1"


@dataclass(frozen=True, slots=True)
class Stage:
    """How operands that threads share reach them: ``depth`` buffers by ``path`` (``none``: each thread loads its own)."""

    depth: int = 0
    path: str = "none"

    def __str__(self) -> str:
        return f"{self.depth}:{self.path}"


@dataclass(frozen=True, slots=True)
class Schedule:
    threads: int
    tile: tuple[tuple[str, Split], ...] = ()
    reduce: tuple[tuple[str, Split], ...] = ()
    stage: Stage = Stage()
    raster: str = "row"
    resident: int = 0  # blocks that an SM must have registers for; 0: as many as the compiler leaves room for
    persistent: int = 0  # blocks that walk all tiles; 0: a block a tile

    def __str__(self) -> str:
        return show(self)

    @property
    def atoms(self) -> dict[str, str]:
        """The axes that tensor cores have, each with its atom; empty where they are not used."""
        return {name: s.atom for name, s in (*self.tile, *self.reduce) if s.atom}

    def split(self, axis: str) -> Split:
        """The split of ``axis``; one that is not named is one element a block (TILE), or one a step (REDUCE)."""
        for name, split in (*self.tile, *self.reduce):
            if name == axis:
                return split
        return Split()


def show(row: Schedule) -> str:
    """The one canonical spelling."""
    items = [f"WORK=t{row.threads}{f'.b{row.resident}' if row.resident else ''}{f'.p{row.persistent}' if row.persistent else ''}"]
    for key, axes in (("TILE", row.tile), ("REDUCE", row.reduce)):
        if axes:
            items.append(f"{key}={','.join(f'{name}:{split}' for name, split in axes)}")
    if row.stage.depth:
        items.append(f"STAGE={row.stage}")
    return " ".join([*items, f"RASTER={row.raster}"])


def parse(text: str) -> Schedule:
    """Inverse of `show`; any order of items is read.  Raises `InvalidInput` with the legal spelling."""
    fields: dict[str, str] = {}
    for item in text.split():
        key, sign, value = item.partition("=")
        if not sign or key not in ("WORK", "TILE", "REDUCE", "STAGE", "RASTER"):
            raise InvalidInput(f"schedule item {item!r}", "items are WORK= TILE= REDUCE= STAGE= RASTER=")
        if key in fields:
            raise InvalidInput(f"schedule item {item!r}", f"{key} is given twice")
        fields[key] = value
    work = re.fullmatch(r"t(\d+)(?:\.b([1-9]\d*))?(?:\.p([1-9]\d*))?", fields.get("WORK", ""))
    if work is None:
        why = "it is t and a number of threads, perhaps b and the blocks an SM must hold, p and the blocks of all: t256, t256.b2, t256.p132"
        raise InvalidInput(f"WORK={fields.get('WORK', '')}", why)
    row = Schedule(
        threads=int(work[1]),
        tile=tuple(_axes(fields.get("TILE", ""))),
        reduce=tuple(_axes(fields.get("REDUCE", ""))),
        stage=_stage(fields["STAGE"]) if "STAGE" in fields else Stage(),
        raster=fields.get("RASTER", "row"),
        resident=int(work[2] or 0),
        persistent=int(work[3] or 0),
    )
    check(row)
    return row


def _axes(text: str) -> Iterable[tuple[str, Split]]:
    for item in filter(None, text.split(",")):
        name, sign, spec = item.partition(":")
        if not sign or not name:
            raise InvalidInput(f"split {item!r}", "it is AXIS:PARTS, such as i0:t16.r4")
        yield name, _split(item, spec)


_FIELD = {"b": "blocks", "s": "steps", "r": "regs", "t": "threads", "w": "threads", "v": "vector"}


def _split(item: str, spec: str) -> Split:
    found: dict[str, int] = {}
    slow = False
    *parts, last = spec.split(".")
    atom = last if last in ATOMS else ""
    for part in parts if atom else (*parts, last):
        match = re.fullmatch(r"([bsrtwv])(\d*)", part)
        if match is None or (not match[2] and match[1] != "s") or _FIELD[match[1]] in found:
            why = f"its parts are b, s, r, t or w, v with a number, each once, such as s.r4.t32.v4; {', '.join(ATOMS)} end one"
            raise InvalidInput(f"split {item!r}", why)
        slow |= match[1] == "w"
        found[_FIELD[match[1]]] = int(match[2] or 0)
    return Split(**found, slow=slow and found["threads"] > 1, atom=atom)


def _stage(text: str) -> Stage:
    match = re.fullmatch(r"(\d):(\w+)", text)
    if match is None or int(match[1]) not in DEPTHS.get(match[2], ()):
        raise InvalidInput(f"STAGE={text}", "it is DEPTH:PATH, with depth 1 or 2 of path shared, 2 to 4 of async, 2 to 8 of tma")
    return Stage(int(match[1]), match[2])


def _power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def check(row: Schedule) -> None:
    """Raise `InvalidInput` where ``row`` contradicts itself, whatever the kernel."""
    if not _power_of_two(row.threads) or not 32 <= row.threads <= MAX_THREADS:
        raise InvalidInput(f"WORK=t{row.threads}", f"threads are a power of two from 32 to {MAX_THREADS}")
    if row.threads * row.resident > 2048:
        raise InvalidInput(f"WORK=t{row.threads}.b{row.resident}", "an SM holds 2048 threads")
    if row.persistent and row.stage.path != "tma":
        raise InvalidInput(
            f"WORK=t{row.threads}.p{row.persistent}", "operands of blocks that take several tiles come by the copy engine (tma)"
        )
    names = [name for name, _ in (*row.tile, *row.reduce)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"axis {name}", "it is split twice")
    for name, split in (*row.tile, *row.reduce):
        if not _power_of_two(split.threads) or not _power_of_two(split.vector) or split.vector > 16:
            raise InvalidInput(f"split {name}:{split}", "t, w and v are powers of two, v up to 16")
        if split.regs < 1 or split.blocks < 1:
            raise InvalidInput(f"split {name}:{split}", "b and r are at least 1")
    for name, split in row.tile:
        if split.blocks != 1 or split.steps < 1:
            raise InvalidInput(f"split {name}:{split}", "a TILE axis has as many blocks as it needs, and a number of steps: s2, s4, ...")
    if not re.fullmatch(r"row|late([1-9]\d*)?|g[1-9]\d*", row.raster):
        raise InvalidInput(f"RASTER={row.raster}", "it is row, late, or gN or lateN such as g8")
    digits = 1
    for _, split in row.tile:
        digits *= split.threads
    if row.atoms:
        _check_atoms(row, digits)
    elif row.stage.path == "tma":
        raise InvalidInput(f"STAGE={row.stage}", "the copy engine brings what tensor cores multiply: m16, n8, k16 are missing")
    if digits > row.threads:
        raise InvalidInput(f"WORK=t{row.threads}", f"TILE needs {digits} threads")
    for name, split in row.reduce:
        if split.threads > row.threads:
            raise InvalidInput(f"split {name}:{split}", f"it needs more than the {row.threads} threads of WORK")


def _check_atoms(row: Schedule, warps: int) -> None:
    """The lanes of every warp belong to the tensor core's step."""
    for key, axes, legal in (("TILE", row.tile, ("mn",)), ("REDUCE", row.reduce, ("k", "kk"))):
        if "".join(sorted(s.atom[0] for _, s in axes if s.atom)) not in legal:
            why = "m16 and n8 stand in TILE, each once, and one of k16, k8, k8x3 in REDUCE, for a fold and perhaps for one inside it"
            raise InvalidInput(f"{key}={','.join(f'{a}:{s}' for a, s in axes)}", why)
        for name, s in axes:
            if s.threads > 1 and (not s.slow or key == "REDUCE"):
                raise InvalidInput(f"split {name}:{s}", "where tensor cores multiply only TILE has threads, in whole warps (w)")
            if s.atom and s.vector > 1:
                raise InvalidInput(f"split {name}:{s}", f"{s.atom} has no vector lanes")
    if row.threads != warps * WARP:
        raise InvalidInput(f"WORK=t{row.threads}", f"TILE's warps are {warps * WARP} threads")
    if not row.stage.depth:
        raise InvalidInput("STAGE", "tensor cores read their operands from shared memory")
    if row.stage.path == "tma":
        _check_warpgroups(row)


def _check_warpgroups(row: Schedule) -> None:
    """The four warps of a warpgroup have 16 rows each, adjacent ones, and the same columns."""
    last = [name for name, s in row.tile if s.threads > 1][-1:]
    for name, s in (*row.tile, *row.reduce):
        if s.atom == "m16" and (s.threads % (WARPGROUP // WARP) or s.regs > 1 or last != [name]):
            why = "a warpgroup's rows are w4.m16, more w is more warpgroups, and no axis after it in TILE has threads"
            raise InvalidInput(f"split {name}:{s}", why)
        if s.atom == "n8" and s.regs * ATOMS["n8"] > 256:
            raise InvalidInput(f"split {name}:{s}", "a warpgroup has up to 256 columns")
        if s.atom[:1] == "k" and (s.atom not in ("k16", "k8x3") or (s.steps != 1 and s.regs % 4)):
            raise InvalidInput(f"split {name}:{s}", "the copy engine brings rows of 128 bytes: r4.k16, r8.k16, ..., or r4.k8x3, ...")
