"""Kernel IR: hardware operations of one GPU kernel, as a simulator can run them and CUDA prints them one to one.

Registers hold scalars of a dtype of `emmy_eq.ops` (16-bit floats and narrow integers only to be loaded, stored, cast
or selected).  Integer index arithmetic is `emmy_eq.index.Idx` over: ``bx by bz`` (block), ``tid`` (thread in block),
``For`` variables, and integer registers by name.  Offsets count elements, not bytes.  A predicate is a conjunction
of comparisons; a predicated load gives ``other`` where it does not hold, a predicated store does nothing.

Data movement and arithmetic:   Let Declare Set Load Store Shuffle Atomic
Control:                        For If Barrier Fence Return Role (warp-specialized branches)
Asynchronous copies (sm_80):    CpAsync CpAsyncCommit CpAsyncWait
Asynchronous copies (sm_90):    MbarInit MbarExpect MbarArrive MbarWait TmaLoad TmaStore TmaCommit TmaWait ProxyFence
Matrix units:                   Ldmatrix Stmatrix Mma (sm_80)   WgmmaFence Wgmma WgmmaCommit WgmmaWait (sm_90a)
Register budget:                SetMaxRegs

Names are unique along a scope: a register is visible from its statement to the end of the body that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from emmy_eq.index import Idx


@dataclass(frozen=True, slots=True)
class Lit:
    """A constant operand: ``bits`` is its pattern in ``dtype``."""

    dtype: str
    bits: int


Atom = str | Lit  # a register's name, or a constant


@dataclass(frozen=True, slots=True)
class Cmp:
    """``left op right`` with op one of ``< <= == != >= >``."""

    left: Idx
    op: str
    right: Idx


@dataclass(frozen=True, slots=True)
class Test:
    """A bool register holds (or does not, if ``negate``)."""

    register: str
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Elect:
    """One lane of each warp, chosen by the hardware (the compiler then knows that one thread issues TMA); warp-uniform code only."""


@dataclass(frozen=True, slots=True)
class AnyLane:
    """A bool register holds in some lane of the warp, whose lanes all go the same way; warp-uniform code only."""

    register: str


Condition = Cmp | Test | Elect | AnyLane
Predicate = tuple[Condition, ...]  # a conjunction; () is always true


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel argument in global memory.  kind: ``input``, ``output``, ``scratch`` (contents undefined),
    ``zeroed`` (scratch that is zero at first launch and that the kernel leaves zero)."""

    name: str
    dtype: str
    size: int  # elements
    kind: str


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A TMA descriptor argument over param ``buffer`` from element ``start`` on: extents and strides (elements, innermost first), box,
    swizzle bytes."""

    name: str
    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared-memory array; ``align`` in bytes.  dtype ``mbar`` is an array of mbarriers."""

    name: str
    dtype: str
    size: int
    align: int = 16


@dataclass(frozen=True, slots=True)
class Let:
    """A new register (single assignment).  op: a row of `emmy_eq.ops`; ``cast``; ``mov``; ``index`` (arg-less; the value of
    ``idx``, i32 or i64); ``bitcast`` (same size); ``pack`` (two 16-bit registers, low half first, into an i32); ``pack_f16``
    and ``pack_bf16`` (two f32 registers, rounded to that first); ``exp2_approx`` (2^x as the hardware has it, 2^-22 off).
    Products never contract by themselves (CUDA is compiled with ``--fmad=false``): an fma is the op ``fma``, so that simulator and GPU
    round alike."""

    name: str
    dtype: str
    op: str
    args: tuple[Atom, ...] = ()
    idx: Idx | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """A mutable register with an initial value."""

    name: str
    dtype: str
    init: Atom


@dataclass(frozen=True, slots=True)
class Set:
    """Assign a declared register: ``name = op args``."""

    name: str
    dtype: str
    op: str
    args: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """``names = buffer[offset : offset+len(names)]`` from ``global`` or ``shared`` memory: one vector access, aligned to its size.
    cache: ``""``, or ``cg`` (L2 only: what other blocks wrote)."""

    names: tuple[str, ...]
    dtype: str
    space: str
    buffer: str
    offset: Idx
    where: Predicate = ()
    other: Lit | None = None  # value where the predicate fails; None: zero
    cache: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    values: tuple[Atom, ...]
    dtype: str
    space: str
    buffer: str
    offset: Idx
    where: Predicate = ()


@dataclass(frozen=True, slots=True)
class Shuffle:
    """``name`` = ``source`` of another lane of the warp; mode ``xor``, ``up``, ``down`` (by a constant) or ``idx`` (of a lane)."""

    name: str
    dtype: str
    source: str
    mode: str
    lane: Idx


@dataclass(frozen=True, slots=True)
class Atomic:
    """Adds the i32 ``value``; ``name`` = old value of buffer[offset] (undefined where the predicate fails)."""

    name: str
    space: str
    buffer: str
    offset: Idx
    value: Atom
    where: Predicate = ()


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(start, stop, step)``; uniform over the threads that reach it unless it holds no barrier.
    unroll: 0 full, 1 never, n times."""

    var: str
    start: Idx
    stop: Idx
    step: int
    body: tuple[Stmt, ...]
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class If:
    where: Predicate
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Return:
    """Leave the kernel (uniformly over the block)."""


@dataclass(frozen=True, slots=True)
class Role:
    """Warp specialization: disjoint warp ranges run different bodies at the same time."""

    warps: tuple[tuple[int, int], ...]  # (first, count) a branch
    bodies: tuple[tuple[Stmt, ...], ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block, or ``threads`` of them on named barrier ``id``; ``wait=False`` only arrives."""

    id: int = 0
    threads: int | None = None
    wait: bool = True


@dataclass(frozen=True, slots=True)
class WarpSync:
    """Orders the shared-memory accesses of one warp."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Memory fence between the blocks of the device."""


@dataclass(frozen=True, slots=True)
class CpAsync:
    """Copy ``count`` elements (4, 8 or 16 bytes) global to shared; where the predicate fails zeros are written."""

    shared: str
    to: Idx
    buffer: str
    offset: Idx
    dtype: str
    count: int
    where: Predicate = ()


@dataclass(frozen=True, slots=True)
class CpAsyncCommit:
    pass


@dataclass(frozen=True, slots=True)
class CpAsyncWait:
    """Until at most ``pending`` of this thread's groups are in flight."""

    pending: int


@dataclass(frozen=True, slots=True)
class MbarInit:
    array: str
    index: Idx
    count: int


@dataclass(frozen=True, slots=True)
class MbarExpect:
    """Arrive, and expect ``bytes`` more from the copy engine."""

    array: str
    index: Idx
    bytes: int


@dataclass(frozen=True, slots=True)
class MbarArrive:
    array: str
    index: Idx


@dataclass(frozen=True, slots=True)
class MbarWait:
    array: str
    index: Idx
    parity: Idx


@dataclass(frozen=True, slots=True)
class TmaLoad:
    """One thread asks for the box of ``map`` at ``coordinates`` (innermost first); out of range reads zero."""

    map: str
    coordinates: tuple[Idx, ...]
    shared: str
    to: Idx
    array: str
    index: Idx


@dataclass(frozen=True, slots=True)
class TmaStore:
    map: str
    coordinates: tuple[Idx, ...]
    shared: str
    source: Idx


@dataclass(frozen=True, slots=True)
class TmaCommit:
    pass


@dataclass(frozen=True, slots=True)
class TmaWait:
    """Until at most ``pending`` store groups have yet to read shared memory."""

    pending: int


@dataclass(frozen=True, slots=True)
class ProxyFence:
    """Makes ordinary shared stores visible to wgmma and TMA (every writer, before the barrier)."""


@dataclass(frozen=True, slots=True)
class Ldmatrix:
    """``count`` 8x8 matrices of 16-bit elements into registers holding pairs (dtype of the register: i32)."""

    names: tuple[str, ...]
    shared: str
    offset: Idx  # of this lane's row
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Stmatrix:
    values: tuple[str, ...]
    shared: str
    offset: Idx
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Mma:
    """``mma.sync`` D = A B + D with shape (m, n, k); operands are register lists in the PTX fragment order."""

    shape: tuple[int, int, int]
    dtype: str  # of A and B: f16, bf16, tf32
    d: tuple[str, ...]
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WgmmaFence:
    """Before the first wgmma.  ``operands``: registers that it reads; the compiler, which may make them after the fence, is told not to."""

    operands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wgmma:
    """``wgmma.mma_async`` m64nNk{8,16}.  B (and A unless in registers) are shared tiles, 128-byte swizzled, given by offsets."""

    n: int
    dtype: str
    d: tuple[str, ...]
    a: tuple[str, ...] | tuple[str, Idx]
    b: tuple[str, Idx]
    scale_d: Atom
    transpose_a: bool = False
    transpose_b: bool = False
    leading: tuple[int, int] = (1, 1)  # LBO of A and of B in bytes
    stride: tuple[int, int] = (1024, 1024)  # SBO


@dataclass(frozen=True, slots=True)
class WgmmaCommit:
    pass


@dataclass(frozen=True, slots=True)
class WgmmaWait:
    """Until at most ``pending`` groups are in flight.  ``results``: registers that are read next; the compiler, which does not know
    that the wait makes them, is told so."""

    pending: int
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetMaxRegs:
    registers: int
    increase: bool


Stmt = (
    Let | Declare | Set | Load | Store | Shuffle | Atomic | For | If | Return | Role | Barrier | WarpSync | Fence
    | CpAsync | CpAsyncCommit | CpAsyncWait | MbarInit | MbarExpect | MbarArrive | MbarWait
    | TmaLoad | TmaStore | TmaCommit | TmaWait | ProxyFence | Ldmatrix | Stmatrix | Mma
    | WgmmaFence | Wgmma | WgmmaCommit | WgmmaWait | SetMaxRegs
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """One ``__global__`` function."""

    name: str
    params: tuple[Param, ...]
    grid: tuple[int, int, int]
    threads: int
    shared: tuple[Shared, ...]
    body: tuple[Stmt, ...]
    maps: tuple[TensorMap, ...] = ()
    min_blocks: int = 0  # __launch_bounds__'s second argument; 0 leaves it out
