"""Loop IR by itself: text, rules, interpreter, identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from emmy_eq.errors import VerifyError
from emmy_eq.loop_ir import Kernel, Program, alike, identity, ops, parse, run, show, verify
from tests import loop_samples as samples

SAMPLES = samples.all_samples()


def inputs_of(kernel: Kernel) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded values; integers lie in [0, 5), which is in bounds of every sample's table."""
    rng = np.random.default_rng(0)
    kinds: dict[str, Callable[[tuple[int, ...]], Any]] = {
        "f32": lambda shape: rng.standard_normal(shape).astype(np.float32),
        "bf16": lambda shape: rng.standard_normal(shape).astype(ml_dtypes.bfloat16),
        "i64": lambda shape: rng.integers(0, 5, shape),
    }
    return {b.name: kinds[b.dtype](b.shape) for b in kernel.inputs}


def softmax_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    weight = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def attention_of(i: dict[str, np.ndarray[Any, Any]], causal: bool) -> np.ndarray[Any, Any]:
    scores = i["q"] @ i["k"].swapaxes(1, 2) * 0.125
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    return np.asarray(softmax_of(scores) @ i["v"])


def norm_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)))


WANTED: dict[str, Callable[[dict[str, np.ndarray[Any, Any]]], Any]] = {
    "rmsnorm": lambda i: norm_of(i["x"]) * i["w"],
    "softmax": lambda i: softmax_of(i["x"]),
    "softmax_in_two_passes": lambda i: softmax_of(i["x"]),
    "matmul": lambda i: i["a"] @ i["b"],
    "matmul_bf16": lambda i: i["a"] @ i["b"],
    "bias_matmul_relu": lambda i: np.maximum((i["a"] + i["bias"]) @ i["b"], 0),
    "norm_linear": lambda i: (norm_of(i["x"]) * i["g"]) @ i["w"].T,
    "two_matmuls": lambda i: i["a"] @ i["b"] @ i["c"],
    "attention": lambda i: attention_of(i, causal=False),
    "attention_causal": lambda i: attention_of(i, causal=True),
    "column_sum": lambda i: i["x"].sum(0),
    "total": lambda i: i["x"].sum(),
    "row_argmax": lambda i: (i["x"].max(1), i["x"].argmax(1)),
    "cumsum": lambda i: np.exp(i["x"]).cumsum(1) * i["x"],
    "gather": lambda i: i["table"][i["index"]],
    "transpose": lambda i: -i["x"].T,
    "gelu": lambda i: 0.5 * i["x"] * (1 + np.tanh(np.float32(0.7978846) * (i["x"] + np.float32(0.044715) * i["x"] ** 3))),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_interpreter_agrees_with_numpy(name: str) -> None:
    kernel = SAMPLES[name]
    verify(kernel)
    inputs = inputs_of(kernel)
    wide = {n: x.astype(np.float64) if x.dtype != np.int64 else x for n, x in inputs.items()}
    wanted = WANTED[name](wide)
    outputs = run(kernel, inputs, float64=True)
    for got, want in zip(outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        # float64 on both sides, sums in different orders: some hundred roundings at most
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    for narrow, exact, b in zip(run(kernel, inputs), outputs, kernel.outputs, strict=True):
        assert narrow.dtype == {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i64": np.int64}[b.dtype]
        # sums of up to 32 terms in f32; bf16 rounds the result to 8 bits
        np.testing.assert_allclose(narrow.astype(np.float64), exact, rtol=1e-2 if b.dtype == "bf16" else 1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SAMPLES)
def test_text_reads_back(name: str) -> None:
    assert parse(show(SAMPLES[name])) == SAMPLES[name]


def test_program_reads_back_and_runs() -> None:
    text = """
inputs x: f32[2,3], n: f32[2,3]
temps h: f32[2]

kernel first(x: f32[2,3]) -> h: f32[2]:
  loop i0 < 2:
    fold i1 < 3:
      v0 = load x[i0, i1]
      carry v1 = max(v0)
    store h[i0] = v1

kernel second(h: f32[2], n: f32[6]) -> out: f32[6]:
  loop i0 < 6:
    v0 = load h[i0//3]
    v1 = load n[min(i0, max(i0, 2))]
    v2 = add v0, v1
    store out[i0] = v2

return out: f32[3,2] alias n
"""
    program = parse(text, Program)
    verify(program)
    assert parse(show(program)) == program
    x, n = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    (out,) = run(program, {"x": x, "n": n})
    np.testing.assert_array_equal(out, [[3, 3], [3, 6], [6, 6]])


@pytest.mark.parametrize(
    ("dtype", "text"),
    [("f32", "0.1"), ("f32", "-0.0"), ("f32", "-inf"), ("f32", "0x7fc00001"), ("bf16", "0.5"), ("f16", "1e-07"), ("f64", "1e-300"),
     ("i64", "-3"), ("u8", "200"), ("bool", "True")],
)  # fmt: skip
def test_constants_keep_their_bits(dtype: str, text: str) -> None:
    kernel = parse(f"kernel k() -> out: {dtype}[]:\n  v0 = lit {dtype} {text}\n  store out[] = v0\n", Kernel)
    assert parse(show(kernel)) == kernel
    assert show(parse(show(kernel))) == show(kernel)


BROKEN = {
    "v1 is not in scope": ("v0 = load x[i0]", "v0 = neg v1"),
    "assigned twice": ("store out[i0] = v0", "v0 = load x[i0]\n    store out[i0] = v0"),
    "names i1, which is not bound": ("load x[i0]", "load x[i1]"),
    "may leave [0, 8)": ("load x[i0]", "load x[i0 + 1]"),
    "2 coordinates": ("load x[i0]", "load x[i0, i0]"),
    "write one place": ("store out[i0]", "store out[0]"),
    "is not an input": ("load x[i0]", "load out[i0]"),
    "bound again": ("store out[i0] = v0", "loop i0 < 8:\n      store out[i0] = v0"),
}


@pytest.mark.parametrize("why", BROKEN)
def test_verifier_names_the_broken_rule(why: str) -> None:
    text = "kernel copy(x: f32[8]) -> out: f32[8]:\n  loop i0 < 8:\n    v0 = load x[i0]\n    store out[i0] = v0\n"
    verify(parse(text))
    old, new = BROKEN[why]
    broken = text.replace(old, new)
    if why == "v1 is not in scope":  # the reader itself needs dtypes of what it names
        with pytest.raises(VerifyError, match="v1 has no value here"):
            parse(broken)
        return
    with pytest.raises(VerifyError) as caught:
        verify(parse(broken))
    assert why in str(caught.value)


def test_bounds_that_ranges_do_not_prove_are_enumerated() -> None:
    """i0//4*4 + i0%4 is i0, though the ranges of its parts add up to 11."""
    text = "kernel k(x: f32[10]) -> out: f32[10]:\n  loop i0 < 10:\n    v0 = load x[i0//4*4 + i0%4]\n    store out[i0] = v0\n"
    verify(parse(text))


def test_out_of_bounds_is_an_error() -> None:
    kernel = samples.gather(rows=2, vocabulary=4)
    with pytest.raises(IndexError, match=r"load of table: index g0 of dim 0 leaves \[0, 4\)"):
        run(kernel, {"table": np.zeros((4, 8), np.float32), "index": np.array([1, 4])})


def test_empty_axes() -> None:
    (out,) = run(samples.column_sum(rows=0), {"x": np.zeros((0, 12), np.float32)})
    np.testing.assert_array_equal(out, np.zeros(12))
    (out,) = run(samples.column_sum(columns=0), {"x": np.zeros((8, 0), np.float32)})
    assert out.shape == (0,)


def test_fully_masked_row_of_a_twist_is_nan() -> None:
    (out,) = run(samples.softmax(rows=1), {"x": np.full((1, 8), -np.inf, np.float32)})
    assert np.isnan(out).all()


def test_identity_does_not_depend_on_names() -> None:
    a = samples.rmsnorm()
    b = parse(show(a).replace("rmsnorm", "norm").replace("x", "hidden").replace("w:", "scale:").replace("w[", "scale["), Kernel)
    assert show(a) != show(b)
    assert identity(a) == identity(b)
    assert identity(a) != identity(samples.rmsnorm(rows=5))
    assert len(identity(a)) == 64


def program_of(kernel: Kernel) -> Program:
    return Program((kernel,), kernel.inputs, (), tuple((b.name, b.shape, b.dtype, None) for b in kernel.outputs))


@pytest.mark.parametrize("name", SAMPLES)
def test_in_the_names_of_any_other_kernel_it_computes_the_same(name: str) -> None:
    kernel = SAMPLES[name]
    inputs = inputs_of(kernel)
    assert alike(program_of(kernel), program_of(kernel)) == program_of(kernel)
    for model in SAMPLES.values():
        (named,) = alike(program_of(kernel), program_of(model)).kernels
        verify(named)
        wanted = dict(zip((b.name for b in kernel.outputs), run(kernel, inputs), strict=True))
        for b, got in zip(named.outputs, run(named, inputs), strict=True):
            np.testing.assert_array_equal(got, wanted[b.name])  # the same operations on the same operands


def test_values_in_one_place_have_one_name() -> None:
    """Operands the other way round, and a value that only one of the two has."""
    model = """kernel f(x: f32[4], y: f32[4]) -> out: f32[4]:
  loop i0 < 4:
    v0 = load x[i0]
    v1 = load y[i0]
    v2 = mul v0, v1
    v3 = exp v2
    v4 = sub v0, v3
    store out[i0] = v4
"""
    other = """kernel f(y: f32[4], x: f32[4]) -> out: f32[4]:
  loop i0 < 4:
    v0 = load y[i0]
    v1 = neg v0
    v2 = load x[i0]
    v3 = mul v1, v2
    v4 = exp v3
    v5 = sub v2, v4
    store out[i0] = v5
"""
    (named,) = alike(program_of(parse(other, Kernel)), program_of(parse(model, Kernel))).kernels
    assert show(named) == model.replace("    v2 = mul v0, v1\n", "    v5 = neg v1\n    v2 = mul v0, v5\n")


def test_operation_counts() -> None:
    assert ops(SAMPLES["rmsnorm"]) == {"add": 1, "load": 3, "mul": 4, "rsqrt": 1, "store": 1, "sum": 1}
