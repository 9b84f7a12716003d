"""Kernels written by hand in Kernel IR, one for each way that hardware moves data; the simulator, the CUDA printer and the GPU run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.index import Idx, const, var
from emmy_eq.ops import DTYPES

Arrays = dict[str, np.ndarray[Any, Any]]
BX, BY, TID, K0, KK = var("bx"), var("by"), var("tid"), var("k0"), var("kk")
ZERO = ir.Lit("f32", 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """``inputs(rng)`` draws the kernel's inputs; ``reference`` gives its outputs in float64.  ``tolerance`` is relative to the
    largest output; ``exact``: integer-valued data makes every sum exact, so simulator and GPU agree bit for bit."""

    kernel: ir.Kernel
    inputs: Callable[[np.random.Generator], Arrays]
    reference: Callable[[Arrays], Arrays]
    tolerance: float = 0.0


def buffers(sample: Sample, inputs: Arrays) -> Arrays:
    """The inputs with outputs to be written."""
    outputs = {p.name: np.empty(p.size, DTYPES[p.dtype]) for p in sample.kernel.params if p.kind == "output"}
    return {name: np.ascontiguousarray(a).reshape(-1) for name, a in inputs.items()} | outputs


def without(kernel: ir.Kernel, kind: type, which: int = 0) -> ir.Kernel:
    """The kernel less its ``which``-th statement of a kind, in the order of `walk.statements`."""
    found = [s for s in walk.statements(kernel.body) if isinstance(s, kind)]
    return replaced(kernel, found[which], ())


def replaced(kernel: ir.Kernel, old: ir.Stmt, new: tuple[ir.Stmt, ...]) -> ir.Kernel:
    """The kernel with one statement (that very object) exchanged for others."""

    def body(statements: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        return tuple(t for s in statements for t in (new if s is old else (inner(s),)))

    def inner(s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, ir.For):
            return replace(s, body=body(s.body))
        if isinstance(s, ir.If):
            return replace(s, body=body(s.body), orelse=body(s.orelse))
        return replace(s, bodies=tuple(body(b) for b in s.bodies)) if isinstance(s, ir.Role) else s

    return replace(kernel, body=body(kernel.body))


def integers(dtype: str, *shape: int) -> Callable[[np.random.Generator], np.ndarray[Any, Any]]:
    """Small whole numbers: sums of their products are exact in every order."""
    return lambda rng: rng.integers(-4, 5, shape).astype(DTYPES[dtype])


def _product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def vector_add(n: int = 1001) -> Sample:
    """Four elements a thread; the last vector that does not fit is done element by element."""
    at = (BX * 64 + TID) * 4
    fits, tail = (ir.Cmp(at + 3, "<", const(n)),), (ir.Cmp(at + 3, ">=", const(n)),)
    whole = tuple(ir.Load(tuple(f"{x}{i}" for i in range(4)), "f32", "global", x, at) for x in ("x", "y"))
    adds = tuple(ir.Let(f"o{i}", "f32", "add", (f"x{i}", f"y{i}")) for i in range(4))
    one: tuple[ir.Stmt, ...] = (
        ir.Load(("xs",), "f32", "global", "x", at + var("i"), (ir.Cmp(at + var("i"), "<", const(n)),)),
        ir.Load(("ys",), "f32", "global", "y", at + var("i"), (ir.Cmp(at + var("i"), "<", const(n)),)),
        ir.Let("os", "f32", "add", ("xs", "ys")),
        ir.Store(("os",), "f32", "global", "o", at + var("i"), (ir.Cmp(at + var("i"), "<", const(n)),)),
    )
    body: tuple[ir.Stmt, ...] = (
        ir.If(fits, (*whole, *adds, ir.Store(("o0", "o1", "o2", "o3"), "f32", "global", "o", at))),
        ir.If(tail, (ir.For("i", const(0), const(4), 1, one),)),
    )
    params = (ir.Param("x", "f32", n, "input"), ir.Param("y", "f32", n, "input"), ir.Param("o", "f32", n, "output"))
    kernel = ir.Kernel("vector_add", params, (-(-n // 256), 1, 1), 64, (), body)
    draw: Callable[[np.random.Generator], Arrays] = lambda rng: {s: rng.standard_normal(n).astype(np.float32) for s in "xy"}  # noqa: E731
    return Sample(kernel, draw, lambda a: {"o": (a["x"] + a["y"]).astype(np.float64)})


def _warp_sum(register: str, prefix: str) -> tuple[ir.Stmt, ...]:
    """Adds a mutable register over the lanes of each warp."""
    body: list[ir.Stmt] = []
    for d in (16, 8, 4, 2, 1):
        body.append(ir.Shuffle(f"{prefix}{d}", "f32", register, "xor", const(d)))
        body.append(ir.Set(register, "f32", "add", (register, f"{prefix}{d}")))
    return tuple(body)


def block_sum(register: str, warps: int) -> tuple[ir.Stmt, ...]:
    """Adds a mutable register over the block; thread 0 holds the sum.  Uses the shared array ``part``."""
    first = (ir.Cmp(TID, "<", const(32)),)
    return (
        *_warp_sum(register, "lane"),
        ir.Store((register,), "f32", "shared", "part", TID // 32, (ir.Cmp(TID % 32, "==", const(0)),)),
        ir.Barrier(),
        ir.If(first, (
            ir.Load(("across",), "f32", "shared", "part", TID, (ir.Cmp(TID, "<", const(warps)),)),
            ir.Set(register, "f32", "mov", ("across",)),
            *_warp_sum(register, "warp"),
        )),
    )  # fmt: skip


def row_sum(rows: int = 6, columns: int = 500) -> Sample:
    """A block a row: registers, then lanes by shuffles, then warps by shared memory."""
    at = K0 + TID
    body: tuple[ir.Stmt, ...] = (
        ir.Declare("total", "f32", ZERO),
        ir.For("k0", const(0), const(columns), 128, (
            ir.Load(("x0",), "f32", "global", "x", BX * columns + at, (ir.Cmp(at, "<", const(columns)),)),
            ir.Set("total", "f32", "add", ("total", "x0")),
        )),
        *block_sum("total", 4),
        ir.Store(("total",), "f32", "global", "o", BX, (ir.Cmp(TID, "==", const(0)),)),
    )  # fmt: skip
    params = (ir.Param("x", "f32", rows * columns, "input"), ir.Param("o", "f32", rows, "output"))
    kernel = ir.Kernel("row_sum", params, (rows, 1, 1), 128, (ir.Shared("part", "f32", 4),), body)
    draw = integers("f32", rows, columns)
    return Sample(kernel, lambda rng: {"x": draw(rng)}, lambda a: {"o": a["x"].astype(np.float64).sum(1)})


def last_block_sum(n: int = 3000) -> Sample:
    """Every block leaves a partial sum; the last to arrive adds them in order and resets the counter."""
    blocks = -(-n // 512)
    at = BX * 512 + K0 + TID
    zero = (ir.Cmp(TID, "==", const(0)),)
    body: tuple[ir.Stmt, ...] = (
        ir.Declare("total", "f32", ZERO),
        ir.For("k0", const(0), const(512), 128, (
            ir.Load(("x0",), "f32", "global", "x", at, (ir.Cmp(at, "<", const(n)),)),
            ir.Set("total", "f32", "add", ("total", "x0")),
        )),
        *block_sum("total", 4),
        ir.If(zero, (
            ir.Store(("total",), "f32", "global", "partial", BX),
            ir.Fence(),
            ir.Atomic("seen", "global", "count", const(0), ir.Lit("i32", 1)),
            ir.Store(("seen",), "i32", "shared", "arrived", const(0)),
        )),
        ir.Barrier(),
        ir.Load(("before",), "i32", "shared", "arrived", const(0)),
        ir.If((ir.Cmp(var("before"), "==", const(blocks - 1)), *zero), (
            ir.Fence(),
            ir.Declare("sum", "f32", ZERO),
            ir.For("b", const(0), const(blocks), 1, (
                ir.Load(("p",), "f32", "global", "partial", var("b"), cache="cg"),
                ir.Set("sum", "f32", "add", ("sum", "p")),
            )),
            ir.Store(("sum",), "f32", "global", "o", const(0)),
            ir.Store((ir.Lit("i32", 0),), "i32", "global", "count", const(0)),
        )),
    )  # fmt: skip
    params = (
        ir.Param("x", "f32", n, "input"), ir.Param("o", "f32", 1, "output"),
        ir.Param("partial", "f32", blocks, "scratch"), ir.Param("count", "i32", 1, "zeroed"),
    )  # fmt: skip
    shared = (ir.Shared("part", "f32", 4), ir.Shared("arrived", "i32", 1))
    kernel = ir.Kernel("last_block_sum", params, (blocks, 1, 1), 128, shared, body)
    draw = integers("f32", n)
    return Sample(kernel, lambda rng: {"x": draw(rng)}, lambda a: {"o": a["x"].astype(np.float64).sum(keepdims=True)})


def staged_matmul(m: int = 128, n: int = 128, k: int = 128) -> Sample:
    """64 x 64 tiles, 4 x 4 a thread; two stages of 16 k each, filled by cp.async one step ahead."""
    row, column = TID // 16 * 4, TID % 16 * 4

    def copy(stage: Idx, k0: Idx, when: ir.Predicate) -> tuple[ir.Stmt, ...]:
        a_row, a_column, b_row, b_column = TID // 4, TID % 4 * 4, TID // 16, TID % 16 * 4
        return (
            ir.CpAsync("as", stage * (64 * 20) + a_row * 20 + a_column, "a", (BY * 64 + a_row) * k + k0 + a_column, "f32", 4, when),
            ir.CpAsync("bs", stage * (16 * 64) + b_row * 64 + b_column, "b", (k0 + b_row) * n + BX * 64 + b_column, "f32", 4, when),
            ir.CpAsyncCommit(),
        )

    stage = K0 // 16 % 2
    step: tuple[ir.Stmt, ...] = (
        *(ir.Load((f"a{i}",), "f32", "shared", "as", stage * (64 * 20) + (row + i) * 20 + KK) for i in range(4)),
        ir.Load(("b0", "b1", "b2", "b3"), "f32", "shared", "bs", stage * (16 * 64) + KK * 64 + column),
        *(ir.Set(f"c{i}{j}", "f32", "fma", (f"a{i}", f"b{j}", f"c{i}{j}")) for i in range(4) for j in range(4)),
    )
    loop: tuple[ir.Stmt, ...] = (
        *copy((K0 // 16 + 1) % 2, K0 + 16, (ir.Cmp(K0 + 16, "<", const(k)),)),
        ir.CpAsyncWait(1),
        ir.Barrier(),
        ir.For("kk", const(0), const(16), 1, step, unroll=0),
        ir.Barrier(),
    )
    body: tuple[ir.Stmt, ...] = (
        *(ir.Declare(f"c{i}{j}", "f32", ZERO) for i in range(4) for j in range(4)),
        *copy(const(0), const(0), ()),
        ir.For("k0", const(0), const(k), 16, loop),
        *(
            ir.Store(tuple(f"c{i}{j}" for j in range(4)), "f32", "global", "c", (BY * 64 + row + i) * n + BX * 64 + column)
            for i in range(4)
        ),
    )
    params = (ir.Param("a", "f32", m * k, "input"), ir.Param("b", "f32", k * n, "input"), ir.Param("c", "f32", m * n, "output"))
    shared = (ir.Shared("as", "f32", 2 * 64 * 20), ir.Shared("bs", "f32", 2 * 16 * 64))
    kernel = ir.Kernel("staged_matmul", params, (n // 64, m // 64, 1), 256, shared, body)

    def draw(rng: np.random.Generator) -> Arrays:
        return {"a": rng.standard_normal((m, k)).astype(np.float32), "b": rng.standard_normal((k, n)).astype(np.float32)}

    # k roundings of f32 each: k * 2**-24, relative to a largest output of about 3 sqrt(k).
    return Sample(kernel, draw, lambda a: {"c": _product(a["a"], a["b"]).ravel()}, tolerance=k * 2.0**-24)


def mma_matmul(dtype: str = "bf16", k: int = 64) -> Sample:
    """A 32 x 16 tile by two warps, each 16 x 16; operands by ldmatrix from rows padded by 16 bytes; B is [N, K]."""
    tf32 = dtype == "tf32"
    element, vector, depth = ("f32", 4, 8) if tf32 else (dtype, 8, 16)
    pitch = k + vector
    lane, warp = TID % 32, TID // 32
    chunks = k // vector

    def stage(array: str, rows: int) -> ir.Stmt:
        at = K0 + TID
        names = tuple(f"{array}{i}" for i in range(vector))
        return ir.For("k0", const(0), const(rows * chunks), 64, (
            ir.Load(names, element, "global", array, at * vector),
            ir.Store(names, element, "shared", array + "s", at // chunks * pitch + at % chunks * vector),
        ))  # fmt: skip

    a_at = (warp * 16 + lane % 16) * pitch + KK + lane // 16 * vector
    # Matrices in order: n 0..8 with k half 0 and 1, then n 8..16.
    b_at = (lane // 16 * 8 + lane % 8) * pitch + KK + lane // 8 % 2 * vector
    step: tuple[ir.Stmt, ...] = (
        ir.Ldmatrix(("f0", "f1", "f2", "f3"), "as", a_at),
        ir.Ldmatrix(("g0", "g1", "g2", "g3"), "bs", b_at),
        *(ir.Mma((16, 8, depth), dtype, tuple(f"d{4 * h + r}" for r in range(4)), ("f0", "f1", "f2", "f3"), (f"g{2 * h}", f"g{2 * h + 1}"))
          for h in range(2)),
    )  # fmt: skip
    out = (
        ir.Store((f"d{4 * h + 2 * r}", f"d{4 * h + 2 * r + 1}"), "f32", "global", "c",
                 (warp * 16 + lane // 4 + 8 * r) * 16 + 8 * h + lane % 4 * 2)
        for h in range(2) for r in range(2)
    )  # fmt: skip
    body: tuple[ir.Stmt, ...] = (
        *(ir.Declare(f"d{i}", "f32", ZERO) for i in range(8)),
        stage("a", 32), stage("b", 16), ir.Barrier(),
        ir.For("kk", const(0), const(k), depth, step),
        *out,
    )  # fmt: skip
    params = (ir.Param("a", element, 32 * k, "input"), ir.Param("b", element, 16 * k, "input"), ir.Param("c", "f32", 32 * 16, "output"))
    shared = (ir.Shared("as", element, 32 * pitch), ir.Shared("bs", element, 16 * pitch))
    kernel = ir.Kernel(f"mma_{dtype}", params, (1, 1, 1), 64, shared, body)
    a, b = integers(element, 32, k), integers(element, 16, k)
    return Sample(kernel, lambda rng: {"a": a(rng), "b": b(rng)}, lambda x: {"c": _product(x["a"], x["b"].T).ravel()})


def wgmma_matmul(b_rows_are_n: bool = True, m: int = 120, n: int = 128, k: int = 192) -> Sample:
    """bf16, tile 128 x 64: a producer warp fills two stages of 64 k by TMA, two warpgroups multiply, results leave by TMA."""
    stages, a_size, b_size = 2, 128 * 64, 64 * 64
    turns = k // 64
    i = var("i")
    stage, parity = i % stages, i // stages % 2
    consumer = TID // 128 - 1
    b_box = (K0, BX * 64) if b_rows_are_n else (BX * 64, K0)
    load: tuple[ir.Stmt, ...] = (
        ir.MbarWait("empty", stage, (parity + 1) % 2),
        ir.MbarExpect("full", stage, 2 * (a_size + b_size)),
        ir.TmaLoad("am", (i * 64, BY * 128), "as", stage * a_size, "full", stage),
        ir.TmaLoad("bm", tuple(index_of(x, i * 64) for x in b_box), "bs", stage * b_size, "full", stage),
    )
    producer: tuple[ir.Stmt, ...] = (
        ir.SetMaxRegs(40, increase=False),
        ir.If((ir.Cmp(TID, "<", const(32)), ir.Elect()), (ir.For("i", const(0), const(turns), 1, load),)),
    )
    d = tuple(f"d{r}" for r in range(32))
    multiply = tuple(
        ir.Wgmma(64, "bf16", d, ("as", stage * a_size + consumer * (64 * 64) + 16 * s),
                 ("bs", stage * b_size + (16 * s if b_rows_are_n else 16 * 64 * s)), ir.Lit("i32", 1), transpose_b=not b_rows_are_n)
        for s in range(4)
    )  # fmt: skip
    row, lane = TID % 128 // 32 * 16 + TID % 16, TID % 32
    pack: list[ir.Stmt] = []
    for r in range(0, 32, 2):
        pack += [ir.Let(f"h{r}", "bf16", "cast", (f"d{r}",)), ir.Let(f"h{r + 1}", "bf16", "cast", (f"d{r + 1}",))]
        pack.append(ir.Let(f"p{r // 2}", "i32", "pack", (f"h{r}", f"h{r + 1}")))
    # A row of 64 results is 8 chunks of 16 bytes; the chunk's number is xored with the row's, as the output map expects.
    chunk = tuple(
        ir.Stmatrix(tuple(f"p{4 * j + r}" for r in range(4)), "cs", consumer * (64 * 64) + row * 64 + var(f"x{j}") * 8) for j in range(4)
    )
    swizzle: list[ir.Stmt] = [ir.Let("r", "i32", "index", (), row % 8)]
    for j in range(4):
        swizzle += [ir.Let(f"c{j}", "i32", "index", (), lane // 16 + 2 * j), ir.Let(f"x{j}", "i32", "xor", (f"c{j}", "r"))]
    consume: tuple[ir.Stmt, ...] = (
        ir.SetMaxRegs(232, increase=True),
        *(ir.Declare(r, "f32", ZERO) for r in d),
        ir.For("i", const(0), const(turns), 1, (
            ir.MbarWait("full", stage, parity),
            ir.WgmmaFence(), *multiply, ir.WgmmaCommit(), ir.WgmmaWait(0),
            ir.If((ir.Cmp(TID % 128, "==", const(0)),), (ir.MbarArrive("empty", stage),)),
        )),
        *pack, *swizzle, *chunk,
        ir.ProxyFence(),
        ir.Barrier(1, 256),
        ir.If((ir.Cmp(TID % 128, "==", const(0)),), (
            ir.TmaStore("cm", (BX * 64, BY * 128 + consumer * 64), "cs", consumer * (64 * 64)),
            ir.TmaCommit(), ir.TmaWait(0),
        )),
    )  # fmt: skip
    start = tuple(s for at in range(stages) for s in (ir.MbarInit("full", const(at), 1), ir.MbarInit("empty", const(at), 2)))
    body: tuple[ir.Stmt, ...] = (
        ir.If((ir.Cmp(TID, "==", const(0)),), start),
        ir.Barrier(),
        ir.Role(((0, 4), (4, 8)), (producer, consume)),
    )  # fmt: skip
    b_shape = (k, n) if b_rows_are_n else (n, k)  # innermost first
    maps = (
        ir.TensorMap("am", "a", "bf16", (k, m), (1, k), (64, 128), 128),
        ir.TensorMap("bm", "b", "bf16", b_shape, (1, b_shape[0]), (64, 64), 128),
        ir.TensorMap("cm", "c", "bf16", (n, m), (1, n), (64, 64), 128),
    )
    shared = (
        ir.Shared("as", "bf16", stages * a_size, 1024), ir.Shared("bs", "bf16", stages * b_size, 1024),
        ir.Shared("cs", "bf16", 2 * 64 * 64, 1024), ir.Shared("full", "mbar", stages, 8), ir.Shared("empty", "mbar", stages, 8),
    )  # fmt: skip
    params = (ir.Param("a", "bf16", m * k, "input"), ir.Param("b", "bf16", n * k, "input"), ir.Param("c", "bf16", m * n, "output"))
    kernel = ir.Kernel(f"wgmma_{'nk' if b_rows_are_n else 'kn'}", params, (n // 64, -(-m // 128), 1), 384, shared, body, maps, min_blocks=1)
    a, b = integers("bf16", m, k), integers("bf16", *((n, k) if b_rows_are_n else (k, n)))

    def reference(x: Arrays) -> Arrays:
        product = _product(x["a"], x["b"].T if b_rows_are_n else x["b"])
        return {"c": product.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64).ravel()}

    return Sample(kernel, lambda rng: {"a": a(rng), "b": b(rng)}, reference)


def index_of(x: Idx, k0: Idx) -> Idx:
    return k0 if x is K0 else x


def samples() -> Mapping[str, Sample]:
    """All of them by name."""
    found = (
        vector_add(), row_sum(), last_block_sum(), staged_matmul(),
        mma_matmul("bf16"), mma_matmul("f16"), mma_matmul("tf32"), wgmma_matmul(True), wgmma_matmul(False),
    )  # fmt: skip
    return {s.kernel.name: s for s in found}
