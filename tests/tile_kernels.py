"""Loop IR kernels by name, for tests of schedules and lowering: text, so that a test shows what it lowers."""

from __future__ import annotations

import re

from emmy_eq import loop_ir


def add_bias(rows: int, cols: int) -> str:
    return f"""
kernel add_bias(x: f32[{rows},{cols}], b: f32[{cols}]) -> out: f32[{rows},{cols}]:
  loop i0 < {rows}, i1 < {cols}:
    v0 = load x[i0, i1]
    v1 = load b[i1]
    v2 = add v0, v1
    store out[i0, i1] = v2
"""


def exp_neg(n: int) -> str:
    return f"""
kernel exp_neg(x: f32[{n}]) -> out: f32[{n}]:
  loop i0 < {n}:
    v0 = load x[i0]
    v1 = neg v0
    v2 = exp v1
    store out[i0] = v2
"""


def softmax(rows: int, cols: int) -> str:
    return f"""
kernel softmax(x: f32[{rows},{cols}]) -> out: f32[{rows},{cols}]:
  loop i0 < {rows}:
    fold i1 < {cols}:
      v0 = load x[i0, i1]
      carry v1 = max(v0)
    fold i1 < {cols}:
      v2 = load x[i0, i1]
      v3 = sub v2, v1
      v4 = exp v3
      carry v5 = sum(v4)
    loop i1 < {cols}:
      v6 = load x[i0, i1]
      v7 = sub v6, v1
      v8 = exp v7
      v9 = div v8, v5
      store out[i0, i1] = v9
"""


def rmsnorm(rows: int, cols: int) -> str:
    return f"""
kernel rmsnorm(x: f32[{rows},{cols}], w: f32[{cols}]) -> out: f32[{rows},{cols}]:
  loop i0 < {rows}:
    fold i1 < {cols}:
      v0 = load x[i0, i1]
      v1 = mul v0, v0
      carry v2 = sum(v1)
    v3 = lit f32 {1 / cols!r}
    v4 = mul v2, v3
    v5 = lit f32 1e-06
    v6 = add v4, v5
    v7 = rsqrt v6
    loop i1 < {cols}:
      v8 = load x[i0, i1]
      v9 = mul v8, v7
      v10 = load w[i1]
      v11 = mul v9, v10
      store out[i0, i1] = v11
"""


def row_sum(rows: int, cols: int) -> str:
    return f"""
kernel row_sum(x: f32[{rows},{cols}]) -> out: f32[{rows}]:
  loop i0 < {rows}:
    fold i1 < {cols}:
      v0 = load x[i0, i1]
      v1 = exp v0
      carry v2 = sum(v1)
    store out[i0] = v2
"""


def column_sum(rows: int, cols: int) -> str:
    return f"""
kernel column_sum(x: f32[{rows},{cols}]) -> out: f32[{cols}]:
  loop i1 < {cols}:
    fold i0 < {rows}:
      v0 = load x[i0, i1]
      carry v1 = sum(v0)
    store out[i1] = v1
"""


def full_sum(n: int) -> str:
    return f"""
kernel full_sum(x: f32[{n}]) -> out: f32[]:
  fold i0 < {n}:
    v0 = load x[i0]
    carry v1 = sum(v0)
  store out[] = v1
"""


def logsumexp(rows: int, cols: int) -> str:
    return f"""
kernel logsumexp(x: f32[{rows},{cols}]) -> out: f32[{rows}]:
  loop i0 < {rows}:
    v0 = lit f32 1.0
    fold i1 < {cols}:
      v1 = load x[i0, i1]
      carry v2, v3 = twist softmax(v1, v0)
    v4 = log v3
    v5 = add v2, v4
    store out[i0] = v5
"""


def variance(rows: int, cols: int) -> str:
    return f"""
kernel variance(x: f32[{rows},{cols}]) -> mean: f32[{rows}], out: f32[{rows}]:
  loop i0 < {rows}:
    v0 = lit f32 1.0
    v5 = lit f32 {float(cols)!r}
    fold i1 < {cols}:
      v1 = load x[i0, i1]
      carry v2, v3 = twist variance(v1, v0)
    v4 = div v3, v5
    v6 = div v2, v5
    store mean[i0] = v6
    store out[i0] = v4
"""


def stored_as(text: str, dtypes: dict[str, str]) -> str:
    """The f32 kernel ``text`` with other types of the buffers named: what is loaded is cast, and so is what is stored."""
    lines = []
    for line in text.splitlines():
        for buffer, dtype in dtypes.items():
            line = line.replace(f"{buffer}: f32[", f"{buffer}: {dtype}[")
        load = re.fullmatch(r"( *)v(\d+) = load (\w+)(.*)", line)
        store = re.fullmatch(r"( *)store (\w+)(.*) = v(\d+)", line)
        if load and load[3] in dtypes:
            lines += [f"{load[1]}l{load[2]} = load {load[3]}{load[4]}", f"{load[1]}v{load[2]} = cast f32 l{load[2]}"]
        elif store and store[2] in dtypes:
            lines += [f"{store[1]}s{store[4]} = cast {dtypes[store[2]]} v{store[4]}", f"{store[1]}store {store[2]}{store[3]} = s{store[4]}"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def product(name: str, m: int, n: int, k: int, left: str = "mk", right: str = "kn", operands: str = "v0, v1") -> str:
    """A product of f32 matrices, each stored in either order."""
    extent, index = {"m": m, "n": n, "k": k}, {"m": "i0", "n": "i1", "k": "i2"}
    a, b = (",".join(str(extent[x]) for x in order) for order in (left, right))
    at, bt = (", ".join(index[x] for x in order) for order in (left, right))
    return f"""
kernel {name}(a: f32[{a}], b: f32[{b}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load a[{at}]
      v1 = load b[{bt}]
      v2 = mul {operands}
      carry v3 = sum(v2)
    store out[i0, i1] = v3
"""


def matmul(m: int, n: int, k: int) -> str:
    return product("matmul", m, n, k)


def matmul_f16(m: int, n: int, k: int) -> str:
    """16-bit storage, f32 sums."""
    return stored_as(product("matmul_f16", m, n, k), {"a": "f16", "b": "bf16", "out": "f16"})


def halves(m: int, n: int, k: int, dtype: str = "f16", left: str = "mk", right: str = "kn") -> str:
    return stored_as(product("halves", m, n, k, left, right, "v1, v0"), dict.fromkeys(("a", "b", "out"), dtype))


def floats(m: int, n: int, k: int, left: str = "mk", right: str = "kn") -> str:
    return product("floats", m, n, k, left, right, "v1, v0")


def batched_halves(batch: int, m: int, n: int, k: int) -> str:
    """A product a batch, with f32 bias and residual, and a second output."""
    a, b, out = f"{batch},{m},{k}", f"{batch},{n},{k}", f"{batch},{m},{n}"
    return f"""
kernel batched_halves(a: bf16[{a}], b: bf16[{b}], bias: f32[{n}], x: bf16[{out}]) -> out: bf16[{out}], raw: f32[{out}]:
  loop i0 < {batch}, i1 < {m}, i2 < {n}:
    fold i3 < {k}:
      v0 = load a[i0, i1, i3]
      v1 = cast f32 v0
      v2 = load b[i0, i2, i3]
      v3 = cast f32 v2
      v4 = mul v1, v3
      carry v5 = sum(v4)
    v6 = load bias[i2]
    v7 = add v5, v6
    v8 = load x[i0, i1, i2]
    v9 = cast f32 v8
    v10 = add v7, v9
    v11 = cast bf16 v10
    store out[i0, i1, i2] = v11
    store raw[i0, i1, i2] = v5
"""


def mlp_halves(m: int, n: int, k: int) -> str:
    """silu(x @ g) * (x @ u) of 16-bit values, x rounded once more after an elementwise prologue."""
    return f"""
kernel mlp_halves(x: f16[{m},{k}], g: f16[{k},{n}], u: f16[{k},{n}]) -> out: f16[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      v1 = cast f32 v0
      v2 = exp v1
      v3 = cast f16 v2
      v4 = cast f32 v3
      v5 = load g[i2, i1]
      v6 = cast f32 v5
      v7 = mul v4, v6
      v8 = load u[i2, i1]
      v9 = cast f32 v8
      v10 = mul v4, v9
      carry v11 = sum(v7)
      carry v12 = sum(v10)
    v13 = sigmoid v11
    v14 = mul v11, v13
    v15 = mul v14, v12
    v16 = cast f16 v15
    store out[i0, i1] = v16
"""


def gated(name: str, m: int, n: int, k: int, right: str = "kn") -> str:
    """silu(x @ g) * (x @ u): two products share an operand."""
    tail = """
    v10 = sigmoid v8
    v11 = mul v8, v10
    v12 = mul v11, v9
    store out[i0, i1] = v12"""
    return two_products(name, ("g", "u"), f"out: f32[{m},{n}]", tail, m, n, k, right)


def mlp(m: int, n: int, k: int) -> str:
    return gated("mlp", m, n, k)


def gated_halves(m: int, n: int, k: int, right: str = "kn") -> str:
    """Of 16-bit values as they are stored."""
    return stored_as(gated("gated_halves", m, n, k, right), dict.fromkeys(("x", "g", "u", "out"), "bf16"))


def projections_halves(m: int, n: int, k: int) -> str:
    """x @ a.T and x @ b.T, stored both."""
    tail = """
    store out[i0, i1] = v8
    store other[i0, i1] = v9"""
    text = two_products("projections_halves", ("a", "b"), f"out: f32[{m},{n}], other: f32[{m},{n}]", tail, m, n, k, "nk")
    return stored_as(text, dict.fromkeys(("x", "a", "b", "out", "other"), "bf16"))


def two_products(name: str, factors: tuple[str, str], outputs: str, tail: str, m: int, n: int, k: int, right: str) -> str:
    """The products v8 and v9 of x with each of ``factors``, and what ``tail`` makes of them."""
    shape, at = (f"{k},{n}", "i2, i1") if right == "kn" else (f"{n},{k}", "i1, i2")
    first, second = factors
    return f"""
kernel {name}(x: f32[{m},{k}], {first}: f32[{shape}], {second}: f32[{shape}]) -> {outputs}:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v1 = load x[i0, i2]
      v3 = load {first}[{at}]
      v4 = mul v1, v3
      v6 = load {second}[{at}]
      v7 = mul v1, v6
      carry v8 = sum(v4)
      carry v9 = sum(v7){tail}
"""


def product_by_norm(m: int, n: int, k: int) -> str:
    """(x @ w.T) / |x|: the squares of x are summed beside the product."""
    return f"""
kernel product_by_norm(x: f32[{m},{k}], w: f32[{n},{k}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      v1 = load w[i1, i2]
      v2 = mul v0, v1
      v3 = mul v0, v0
      carry v4 = sum(v2)
      carry v5 = sum(v3)
    v6 = rsqrt v5
    v7 = mul v4, v6
    store out[i0, i1] = v7
"""


def norm_linear_halves(m: int, n: int, k: int) -> str:
    return stored_as(product_by_norm(m, n, k), {"x": "bf16", "w": "bf16"})


def norm_then_linear_halves(m: int, n: int, k: int) -> str:
    """(x / |x|) @ w, x / |x| rounded to 16 bits: the prologue of the product needs a fold over the product's own axis."""
    return f"""
kernel norm_then_linear_halves(x: bf16[{m},{k}], w: bf16[{n},{k}]) -> out: bf16[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      v1 = cast f32 v0
      v2 = mul v1, v1
      carry v3 = sum(v2)
    v4 = rsqrt v3
    fold i2 < {k}:
      v5 = load x[i0, i2]
      v6 = cast f32 v5
      v7 = mul v6, v4
      v8 = cast bf16 v7
      v9 = cast f32 v8
      v10 = load w[i1, i2]
      v11 = cast f32 v10
      v12 = mul v9, v11
      carry v13 = sum(v12)
    v14 = cast bf16 v13
    store out[i0, i1] = v14
"""


def heads_linear_halves(m: int, n: int, heads: int, dim: int) -> str:
    """The projection after attention: a fold over two axes of a permuted operand."""
    return f"""
kernel heads_linear_halves(x: f16[{heads},{m},{dim}], w: f16[{n},{heads},{dim}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {heads}, i3 < {dim}:
      v0 = load x[i2, i0, i3]
      v1 = cast f32 v0
      v2 = load w[i1, i2, i3]
      v3 = cast f32 v2
      v4 = mul v3, v1
      carry v5 = sum(v4)
    store out[i0, i1] = v5
"""


def argmax(rows: int, cols: int) -> str:
    return f"""
kernel argmax(x: f32[{rows},{cols}]) -> out: i64[{rows}]:
  loop i0 < {rows}:
    fold i1 < {cols}:
      v0 = load x[i0, i1]
      carry v1 = argmax(v0)
    store out[i0] = v1
"""


def linear_relu(m: int, n: int, k: int) -> str:
    """relu((a + bias) @ b.T + c): a prologue, the other operand transposed, an epilogue."""
    return f"""
kernel linear_relu(a: f32[{m},{k}], bias: f32[{k}], b: f32[{n},{k}], c: f32[{n}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load a[i0, i2]
      v1 = load bias[i2]
      v2 = add v0, v1
      v3 = load b[i1, i2]
      v4 = mul v2, v3
      carry v5 = sum(v4)
    v6 = load c[i1]
    v7 = add v5, v6
    v8 = lit f32 0.0
    v9 = maximum v7, v8
    store out[i0, i1] = v9
"""


def norm_linear(m: int, n: int, k: int) -> str:
    """rms_norm(x) @ w with the row scale commuted out: statistics and product in one pass."""
    return f"""
kernel norm_linear(x: f32[{m},{k}], g: f32[{k}], w: f32[{k},{n}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      v1 = mul v0, v0
      v2 = load g[i2]
      v3 = mul v0, v2
      v4 = load w[i2, i1]
      v5 = mul v3, v4
      carry v6 = sum(v1)
      carry v7 = sum(v5)
    v8 = lit f32 {1 / k!r}
    v9 = mul v6, v8
    v10 = rsqrt v9
    v11 = mul v7, v10
    store out[i0, i1] = v11
"""


def norm_then_linear(m: int, n: int, k: int) -> str:
    """softmax(x) @ w in three passes: the statistics are values of an outer fold read in an operand's prologue."""
    return f"""
kernel norm_then_linear(x: f32[{m},{k}], w: f32[{k},{n}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      carry v1 = max(v0)
    fold i2 < {k}:
      v2 = load x[i0, i2]
      v3 = sub v2, v1
      v4 = exp v3
      v5 = load w[i2, i1]
      v6 = mul v4, v5
      carry v7 = sum(v6)
    store out[i0, i1] = v7
"""


def two_matmuls(m: int, n: int, k: int, width: int) -> str:
    """(a @ b) @ c in one kernel: the inner product is a value of the outer fold's body."""
    return f"""
kernel two_matmuls(a: f32[{m},{k}], b: f32[{k},{width}], c: f32[{width},{n}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {width}:
      fold i3 < {k}:
        v0 = load a[i0, i3]
        v1 = load b[i3, i2]
        v2 = mul v0, v1
        carry v3 = sum(v2)
      v4 = load c[i2, i1]
      v5 = mul v3, v4
      carry v6 = sum(v5)
    store out[i0, i1] = v6
"""


def attention(
    heads: int, queries: int, keys: int, dim: int, causal: bool = False, groups: int = 1, halved: bool = False, safe: bool = False
) -> str:
    """softmax(q @ k.T * 0.125) @ v, one pass over the keys; ``groups`` query heads share a key head; ``safe``: a masked row gives 0.

    ``halved``: as `attention_halves` has it, with operands in the other order.
    """
    mask = """
      v20 = iota i1
      v21 = iota i4
      v22 = ge v20, v21
      v23 = lit f32 -inf
      v6 = where v22, v5, v23""" if causal else ""  # fmt: skip
    guard = """
    v24 = lit f32 -inf
    v25 = eq v8, v24
    v26 = lit f32 0.0
    v12 = where v25, v26, v11""" if safe else ""  # fmt: skip
    name, product, sums, quotient = "attention", "v2, v3", "v7, v1", "v9, v10"
    if halved:
        name, product, sums, quotient = "attention_halves", "v3, v2", "v1, v7", "v10, v9"
    score = "v6" if causal else "v5"
    head = f"i0//{groups}" if groups > 1 else "i0"
    stored = f"f32[{heads // groups},{keys},{dim}]"
    return f"""
kernel {name}(q: f32[{heads},{queries},{dim}], k: {stored}, v: {stored}) -> out: f32[{heads},{queries},{dim}]:
  loop i0 < {heads}, i1 < {queries}, i2 < {dim}:
    v0 = lit f32 0.125
    v1 = lit f32 1.0
    fold i4 < {keys}:
      fold i3 < {dim}:
        v2 = load q[i0, i1, i3]
        v3 = load k[{head}, i4, i3]
        v17 = mul {product}
        carry v4 = sum(v17)
      v5 = mul v4, v0{mask}
      v7 = load v[{head}, i4, i2]
      carry v8, v9, v10 = twist softmax({score}, {sums})
    v11 = div {quotient}{guard}
    store out[i0, i1, i2] = {"v12" if safe else "v11"}
"""


def attention_halves(
    heads: int, queries: int, keys: int, dim: int, dtype: str = "f16", causal: bool = False, groups: int = 1, safe: bool = False
) -> str:
    """As `attention`, of 16-bit values; weights are rounded as v is."""
    text = attention(heads, queries, keys, dim, causal, groups, True, safe)
    return stored_as(text, dict.fromkeys("qk", dtype) | {"out": dtype}).replace(" v: f32[", f" v: {dtype}[")


def transpose(rows: int, cols: int) -> str:
    return f"""
kernel transpose(x: f32[{rows},{cols}]) -> out: f32[{cols},{rows}]:
  loop i0 < {cols}, i1 < {rows}:
    v0 = load x[i1, i0]
    v1 = neg v0
    store out[i0, i1] = v1
"""


def cumsum(rows: int, cols: int) -> str:
    return f"""
kernel cumsum(x: f32[{rows},{cols}]) -> out: f32[{rows},{cols}]:
  loop i0 < {rows}:
    fold i1 < {cols}:
      v0 = load x[i0, i1]
      carry v1 = sum(v0)
    observe:
      store out[i0, i1] = v1
"""


def gather(count: int, rows: int, cols: int) -> str:
    return f"""
kernel gather(index: i64[{count}], table: f32[{rows},{cols}]) -> out: f32[{count},{cols}]:
  loop i0 < {count}, i1 < {cols}:
    v0 = load index[i0]
    v1 = load table[g0, i1] with v0
    store out[i0, i1] = v1
"""


def kernel(text: str) -> loop_ir.Kernel:
    return loop_ir.parse(text.strip("\n") + "\n", loop_ir.Kernel)
