"""CUDA text of the sample kernels: what it says, and that NVRTC takes it for every target that has what it needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from emmy_eq.codegen import cuda, nvrtc
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.cuda.text import bounds, cast, constant, index_text
from emmy_eq.codegen.kernel_ir.verify import lacks
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import target
from emmy_eq.index import Idx, const, var
from emmy_eq.ops import COMPUTE, DTYPES, ops
from tests.kernel_samples import last_block_sum, samples, wgmma_matmul

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_120")
TID = var("tid")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", samples())
def test_nvrtc_takes_the_samples(name: str, arch: str) -> None:
    kernel = samples()[name].kernel
    if lacks(kernel, target(arch)):
        with pytest.raises(Unsupported, match=f"{arch}.* has no .*wgmma"):
            cuda.source(kernel, target(arch))
        return
    assert nvrtc.compile_cubin(cuda.source(kernel, target(arch)), arch)[:4] == b"\x7fELF"


def one(*body: ir.Stmt, dtype: str = "f32", size: int = 64) -> ir.Kernel:
    params = (ir.Param("x", dtype, size, "input"), ir.Param("o", dtype, size, "output"))
    return ir.Kernel("k", params, (1, 1, 1), 32, (), body)


# Rows whose text for any dtype ("*") is not meant for these: bits of a float, arithmetic of a bool.
BITS = ("and", "or", "xor", "not", "shl", "shr")
MEANINGLESS = {"f32": BITS, "f64": BITS, "bool": ("neg", "abs", "sub", "div", "sign", "shl", "shr")}


def every_op(dtype: str) -> ir.Kernel:
    """Each operation that has text for ``dtype``, and each cast from and to it."""
    lets: list[ir.Stmt] = [ir.Load((n,), dtype, "global", "x", TID + i) for i, n in enumerate("abc")]
    lets.append(ir.Let("t", "bool", "cast", ("a",)))
    for row in ops().values():
        if not row.cuda.keys() & {dtype, "*"} or row.name in MEANINGLESS.get(dtype, ()):
            continue
        args = ("t", "b", "c") if row.name == "where" else ("a", "b", "c")[: row.arity]
        lets.append(ir.Let(f"r_{row.name}", row.gives(dtype), row.name, args))
    for to in DTYPES:
        lets += [ir.Let(f"to_{to}", to, "cast", ("a",)), ir.Let(f"from_{to}", dtype, "cast", (f"to_{to}",))]
        lets.append(ir.Store((f"from_{to}",), dtype, "global", "o", TID))
    return one(*lets, dtype=dtype)


@pytest.mark.parametrize("dtype", sorted(COMPUTE))
def test_nvrtc_takes_every_operation_and_cast(dtype: str) -> None:
    nvrtc.compile_cubin(cuda.source(every_op(dtype)), "sm_80")


@pytest.mark.parametrize("dtype", DTYPES)
def test_nvrtc_takes_every_vector(dtype: str) -> None:
    some = (ir.Cmp(TID, "<", const(7)),)
    body: list[ir.Stmt] = []
    for width in (w for w in (1, 2, 4, 8) if w * DTYPES[dtype].itemsize <= 16):
        for cache in ("", "cg"):
            names = tuple(f"v{width}{i}{cache}" for i in range(width))
            body.append(ir.Load(names, dtype, "global", "x", TID * width, some, cache=cache))
        body.append(ir.Store(names, dtype, "global", "o", TID * width, some))
    nvrtc.compile_cubin(cuda.source(one(*body, dtype=dtype, size=32 * 8)), "sm_80")


def test_nvrtc_takes_atomics_and_shuffles() -> None:
    some = (ir.Cmp(TID, "<", const(5)),)
    body: list[ir.Stmt] = [ir.Atomic(f"{n}{len(w)}", n, n, TID, ir.Lit("i32", 1), w) for n in ("global", "shared") for w in ((), some)]
    body.append(ir.Let("wide", "i64", "cast", ("global0",)))
    for dtype, source in (("i32", "global0"), ("i64", "wide")):
        body += [ir.Shuffle(f"{mode}_{dtype}", dtype, source, mode, const(1)) for mode in ("xor", "up", "down", "idx")]
    kernel = ir.Kernel("k", (ir.Param("global", "i32", 32, "output"),), (1, 1, 1), 32, (ir.Shared("shared", "i32", 32),), tuple(body))
    ir.verify(kernel)
    nvrtc.compile_cubin(cuda.source(kernel), "sm_80")


def test_text(golden: Callable[[str, str], None]) -> None:
    golden("last_block_sum.cu", cuda.source(last_block_sum().kernel))


def test_text_is_the_same_each_time() -> None:
    assert cuda.source(wgmma_matmul().kernel) == cuda.source(wgmma_matmul().kernel)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (TID * 4 + 3, "tid * 4 + 3"),
        (TID // 8 * 2 + TID % 8, "tid / 8 * 2 + tid % 8"),
        (TID * -1 + 31, "-1 * tid + 31"),
        (var("bx") * 3 - TID * 2 - 1, "bx * 3 - tid * 2 - 1"),
        ((TID - 5) // 4, "(int)emmy_floor_index(tid - 5, 4)"),
        ((TID - 5) % 4, "(int)emmy_mod_index(tid - 5, 4)"),
        (TID.min(5).max(2), "max(min(tid, 5), 2)"),
        (var("bx") * 100_000 + TID, "(long long)bx * 100000ll + (long long)tid"),
        (var("j") + TID, "(long long)j + (long long)tid"),
        ((TID + 1) * 4 // 2, "(tid + 1) * 4 / 2"),
        (TID // (const(4) * 2), "tid / 8"),
        (TID - (var("bx") + TID), "tid - (bx + tid)"),
    ],
)
def test_index_text(x: Idx, text: str) -> None:
    ranges = {"tid": (0, 127), "bx": (0, 99_999), "j": (-(2**63), 2**63 - 1)}
    expected = text.replace("-1 * tid", "tid * (-1)")
    assert index_text(x, ranges) == expected


def test_bounds_of_a_variable_that_starts_above_zero() -> None:
    assert bounds(var("i") * 2, {"i": (5, 9)}) == (10, 18)
    assert bounds(var("i") * 2 + 1, {"i": (-3, 2)}) == (-5, 5)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (ir.Lit("f32", 0x3DCCCCCD), "0.1f"),
        (ir.Lit("f32", 0x80000000), "(-0.0f)"),
        (ir.Lit("f32", 0x7F800000), "__int_as_float(0x7f800000)"),
        (ir.Lit("f32", 0x7149F2CA), "1.0e+30f"),
        (ir.Lit("f64", 0x3FB999999999999A), "0.1"),
        (ir.Lit("i32", 0x80000000), "(-2147483647 - 1)"),
        (ir.Lit("i64", -1), "(-1ll)"),
        (ir.Lit("bf16", 0x3F80), "(unsigned short)0x3f80"),
        (ir.Lit("bool", 1), "true"),
    ],
)
def test_constant(literal: ir.Lit, text: str) -> None:
    assert constant(literal) == text


def test_casts_are_never_undefined() -> None:
    assert cast("x", "f32", "i32") == "(int)__float2int_rz(x)"
    assert cast("x", "f64", "u8") == "(unsigned char)__double2ll_rz(x)"
    assert cast("x", "i64", "bf16") == "emmy_f32_to_bf16((float)x)"
    assert cast("x", "bf16", "f16") == "emmy_f32_to_f16(emmy_bf16_to_f32(x))"


def test_names_that_mean_something_in_cuda_are_changed() -> None:
    body = (ir.Load(("expf",), "f32", "global", "int", TID), ir.Store(("expf",), "f32", "global", "o", TID))
    kernel = replace(one(*body), params=(ir.Param("int", "f32", 64, "input"), ir.Param("o", "f32", 64, "output")))
    text = cuda.source(kernel)
    assert "const float expf_ = int_[tid];" in text
    nvrtc.compile_cubin(text, "sm_80")


def test_an_error_shows_the_line() -> None:
    with pytest.raises(nvrtc.CompileError, match=r"at `int y = nonsense;`.*undefined"):
        nvrtc.compile_cubin('extern "C" __global__ void k() {\n  int y = nonsense;\n}\n', "sm_80")


def test_a_descriptor_takes_all_constants_of_its_place() -> None:
    """A sum as it was written may have several: of two the first was lost."""
    text = cuda.source(samples()["wgmma_nk"].kernel, target("H200"))
    places = re.findall(r"emmy_tile\(emmy_smem\(as [^)]*\), 1, 1024\)( \+ -?\d+)", text)
    assert places == [f" + {16 * 2 * s // 16 - 64 * 64 * 2 // 16}" for s in range(4)]
