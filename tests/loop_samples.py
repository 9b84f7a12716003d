"""Loop IR kernels of each kind at chosen extents: what extraction makes of common programs, and what code generation must lower."""

from __future__ import annotations

from emmy_eq.loop_ir import Kernel, parse
from tests import tile_kernels as texts
from tests.tile_kernels import kernel


def rmsnorm(rows: int = 4, columns: int = 8) -> Kernel:
    return kernel(texts.rmsnorm(rows, columns))


def softmax(rows: int = 4, columns: int = 8) -> Kernel:
    text = f"""
kernel softmax(x: f32[{rows},{columns}]) -> out: f32[{rows},{columns}]:
  loop i0 < {rows}:
    v0 = lit f32 1.0
    fold i1 < {columns}:
      v1 = load x[i0, i1]
      carry v2, v3 = twist softmax(v1, v0)
    loop i1 < {columns}:
      v4 = load x[i0, i1]
      v5 = sub v4, v2
      v6 = exp v5
      v7 = div v6, v3
      store out[i0, i1] = v7
"""
    return parse(text, Kernel)


def softmax_in_two_passes(rows: int = 4, columns: int = 8) -> Kernel:
    return kernel(texts.softmax(rows, columns))


def matmul(m: int = 8, n: int = 12, k: int = 16, dtype: str = "f32") -> Kernel:
    """``dtype`` f16 or bf16: products and sum in f32, cast on load and store."""
    return kernel(texts.matmul(m, n, k) if dtype == "f32" else texts.halves(m, n, k, dtype))


def bias_matmul_relu(m: int = 8, n: int = 12, k: int = 16) -> Kernel:
    """A prologue on one operand and an epilogue."""
    text = f"""
kernel bias_matmul_relu(a: f32[{m},{k}], bias: f32[{k}], b: f32[{k},{n}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    v0 = lit f32 0.0
    fold i2 < {k}:
      v1 = load a[i0, i2]
      v2 = load bias[i2]
      v3 = add v1, v2
      v4 = load b[i2, i1]
      v5 = mul v3, v4
      carry v6 = sum(v5)
    v7 = maximum v6, v0
    store out[i0, i1] = v7
"""
    return parse(text, Kernel)


def norm_linear(m: int = 8, n: int = 12, k: int = 16) -> Kernel:
    """A product and the statistics of its rows in one pass."""
    text = f"""
kernel norm_linear(x: f32[{m},{k}], g: f32[{k}], w: f32[{n},{k}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    v0 = lit f32 {float(k)}
    v1 = lit f32 1e-06
    fold i2 < {k}:
      v2 = load x[i0, i2]
      v3 = mul v2, v2
      v4 = load g[i2]
      v5 = mul v2, v4
      v6 = load w[i1, i2]
      v7 = mul v5, v6
      carry v8 = sum(v3)
      carry v9 = sum(v7)
    v10 = div v8, v0
    v11 = add v10, v1
    v12 = rsqrt v11
    v13 = mul v9, v12
    store out[i0, i1] = v13
"""
    return parse(text, Kernel)


def two_matmuls(m: int = 8, k: int = 16, j: int = 16, n: int = 12) -> Kernel:
    return kernel(texts.two_matmuls(m, n, k, j))


def attention(heads: int = 2, queries: int = 6, keys: int = 10, d: int = 4, causal: bool = False) -> Kernel:
    """One pass over the keys; every score is used for all of the head's columns."""
    return kernel(texts.attention(heads, queries, keys, d, causal))


def softmax_product(rows: int = 4, keys: int = 8, columns: int = 8) -> Kernel:
    text = f"""
kernel softmax_product(s: f32[{rows},{keys}], v: f32[{keys},{columns}]) -> out: f32[{rows},{columns}]:
  loop i0 < {rows}, i1 < {columns}:
    fold i2 < {keys}:
      v0 = load s[i0, i2]
      carry v1 = max(v0)
    fold i2 < {keys}:
      v2 = load s[i0, i2]
      v3 = sub v2, v1
      v4 = exp v3
      v5 = load v[i2, i1]
      v6 = mul v4, v5
      carry v7 = sum(v4)
      carry v8 = sum(v6)
    v9 = div v8, v7
    store out[i0, i1] = v9
"""
    return parse(text, Kernel)


def column_sum(rows: int = 8, columns: int = 12) -> Kernel:
    return kernel(texts.column_sum(rows, columns))


def total(n: int = 32) -> Kernel:
    """A full reduction: no parallel axis."""
    return kernel(texts.full_sum(n))


def row_argmax(rows: int = 4, columns: int = 8) -> Kernel:
    """Position and value of the largest element: one fold, two carries, two outputs."""
    text = f"""
kernel row_argmax(x: f32[{rows},{columns}]) -> values: f32[{rows}], indices: i64[{rows}]:
  loop i0 < {rows}:
    fold i1 < {columns}:
      v0 = load x[i0, i1]
      carry v1 = max(v0)
      carry v2 = argmax(v0)
    store values[i0] = v1
    store indices[i0] = v2
"""
    return parse(text, Kernel)


def cumsum(rows: int = 4, columns: int = 8) -> Kernel:
    """A scan with work before and after it: exp(x) summed up, then scaled by x."""
    text = f"""
kernel cumsum(x: f32[{rows},{columns}]) -> out: f32[{rows},{columns}]:
  loop i0 < {rows}:
    fold i1 < {columns}:
      v0 = load x[i0, i1]
      v1 = exp v0
      carry v2 = sum(v1)
    observe:
      v3 = mul v2, v0
      store out[i0, i1] = v3
"""
    return parse(text, Kernel)


def gather(rows: int = 5, columns: int = 8, vocabulary: int = 16) -> Kernel:
    """An embedding: the row is data."""
    return kernel(texts.gather(rows, vocabulary, columns))


def transpose(rows: int = 8, columns: int = 12) -> Kernel:
    return kernel(texts.transpose(rows, columns))


def gelu(n: int = 64) -> Kernel:
    text = f"""
kernel gelu(x: f32[{n}]) -> out: f32[{n}]:
  loop i0 < {n}:
    v0 = load x[i0]
    v1 = lit f32 0.5
    v2 = lit f32 0.7978846
    v3 = lit f32 0.044715
    v4 = lit f32 1.0
    v5 = mul v0, v0
    v6 = mul v5, v0
    v7 = mul v6, v3
    v8 = add v0, v7
    v9 = mul v8, v2
    v10 = tanh v9
    v11 = add v10, v4
    v12 = mul v0, v1
    v13 = mul v12, v11
    store out[i0] = v13
"""
    return parse(text, Kernel)


def all_samples() -> dict[str, Kernel]:
    """One kernel of each kind, at its default extents."""
    makers = (
        rmsnorm, softmax, softmax_in_two_passes, matmul, bias_matmul_relu, norm_linear, two_matmuls, attention,
        column_sum, total, row_argmax, cumsum, gather, transpose, gelu,
    )  # fmt: skip
    return {make.__name__: make() for make in makers} | {"matmul_bf16": matmul(dtype="bf16"), "attention_causal": attention(causal=True)}
