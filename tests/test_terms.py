"""Terms of tensor programs, their text and verifier, and the semantics of each operation on named axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emmy_eq import evaluate, named
from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.errors import VerifyError
from emmy_eq.lower.builder import Builder
from emmy_eq.lower.products import matmul
from emmy_eq.named import NamedArray
from emmy_eq.terms import AxisTable, InputBuf, Result, Stored, TermProgram
from emmy_eq.to_terms import CONE_LIMIT, to_terms

from .term_checks import check, program, seam

NAN, INF = np.nan, np.inf


# lowering


def test_every_computed_tensor_is_a_buffer_and_every_view_an_index() -> None:
    b = Builder()
    x, w = b.input("x", (4, 6), "f32"), b.input("w", (5, 6), "f32")
    total = matmul(b, x, b.permute(w, [1, 0]))
    relu = b.apply("maximum", total, 0.0)
    product, sum_, out = (f"n{k}" for k in (total.node - 1, total.node, relu.node))
    assert tm.show(check(program(b, relu))) == (
        "axes a0=4, a1=5, a2=6\n"
        "input x: f32[4, 6]\n"
        "input w: f32[5, 6]\n"
        f"{product}[a0, a1, a2]: f32 = x[a0, a2] * w[a1, a2]\n"
        f"{sum_}[a0, a1]: f32 = sum{{a2}}({product}[a0, a1, a2])\n"
        f"{out}[a0, a1]: f32 = maximum({sum_}[a0, a1], f32(0.0))\n"
        f"out0: f32[4, 5] over [a0, a1] = {out}"
    )


def test_a_renamed_read_of_a_cone_is_a_load_or_computed_at_every_level() -> None:
    b = Builder()
    rows = b.reduce("sum", b.input("x", (8, 3), "f32"), [1])
    exp = b.apply("exp", rows)
    cone = b.apply("add", exp, 1.0)
    flipped = b.apply("neg", b.along(cone, 0, ix.var("d0") * -1 + 7, 8))
    terms = check(program(b, b.apply("mul", cone, flipped)))
    equal = dict(terms.equalities)
    (outer,) = (load for load in equal if load.attr[0].val is seam(terms, cone)[0])
    assert equal[outer].op == "add"
    inner = equal[outer].args[0]
    assert inner.attr[0].val is seam(terms, exp)[0]
    assert equal[inner].op == "exp"
    leaf = equal[inner].args[0]
    assert leaf.attr[0].val is seam(terms, rows)[0]
    assert leaf not in equal
    assert all(load.attr[1] == (ix.var("a0") * -1 + 7,) for load in (outer, inner, leaf))


def test_a_renamed_read_of_a_reduction_stays_a_load() -> None:
    b = Builder()
    rows = b.reduce("sum", b.input("x", (8, 3), "f32"), [1])
    terms = check(program(b, b.apply("add", rows, b.along(rows, 0, (ix.var("d0") + 1) % 8, 8))))
    assert not terms.equalities


def test_one_fused_form_for_each_tensor_and_index() -> None:
    b = Builder()
    x = b.apply("tanh", b.input("x", (8,), "f32"))
    rolled = b.along(x, 0, (ix.var("d0") + 1) % 8, 8)
    terms = check(program(b, b.apply("add", x, b.apply("exp", rolled)), b.apply("mul", x, rolled)))
    assert len(terms.equalities) == 1


def test_a_cone_that_is_too_large_has_no_fused_form() -> None:
    b = Builder()
    x = b.input("x", (8,), "f32")
    for k in range(CONE_LIMIT + 1):
        x = b.apply("add", x, float(k + 1))
    terms = check(program(b, b.apply("add", x, b.along(x, 0, (ix.var("d0") + 1) % 8, 8))))
    assert not terms.equalities


def test_concatenation_pads_and_masks_are_cones() -> None:
    b = Builder()
    left, right = (b.apply("exp", b.input(n, (4,), "f32")) for n in "xy")
    at = b.position((8,), 0)
    halves = b.along(left, 0, ix.var("d0").min(3), 8), b.along(right, 0, (ix.var("d0") - 4).max(0), 8)
    joined = b.apply("where", b.apply("lt", at, 4), *halves)
    terms = check(program(b, b.apply("add", joined, b.apply("neg", b.along(joined, 0, ix.var("d0") * -1 + 7, 8)))))
    assert len(terms.equalities) == 5  # each half under the joined axis; reversed, and the join reversed


@pytest.mark.parametrize("computed", [False, True])
def test_gather_reads_rows_by_value(computed: bool) -> None:
    b = Builder()
    table, at = b.input("table", (5, 3), "f32"), b.input("at", (2, 4), "i64")
    source = b.apply("exp", table) if computed else table
    rows = b.gather(source, [ix.var("g0"), ix.var("d2")], [b.unsqueeze(at, [2])], (2, 4, 3))
    terms = check(program(b, b.apply("neg", b.reshape(rows, (8, 3)))))
    assert any(len(v.args) == 1 for v in tm.topological([terms.results[0].val]) if v.op == "load")


def test_gather_from_a_cone_has_a_fused_form() -> None:
    b = Builder()
    x, target = b.input("x", (5, 3), "f32"), b.input("target", (5,), "i64")
    top = b.reduce("max", x, [1], True)
    picked = b.gather(b.apply("sub", x, top), [ix.var("d0"), ix.var("g0")], [target], (5,))
    again = b.gather(b.apply("neg", picked), [ix.var("g0")], [b.apply("mod", target, 3)], (5,))
    terms = check(program(b, picked, again))
    (first, fused), *others = terms.equalities
    assert tm.show(fused).splitlines()[-1] == "x[a0, g0; g0 = target[a0]] - t0[a0]"
    assert any("x[g0, g1; g0 = " in tm.show(nested) for _, nested in others)
    assert first.args == (tm.load(InputBuf("target", (5,), "i64"), (ix.var("a0"),), 1),)


def test_gather_along_a_dim_of_one_element_reads_that_element() -> None:
    b = Builder()
    x = b.apply("exp", b.input("x", (3, 1), "f32"))
    at = b.apply("mod", b.input("at", (2,), "i64"), 1)
    check(program(b, b.apply("neg", b.gather(b.apply("neg", x), [ix.const(1), ix.var("g0")], [at], (2,)))))


def test_gather_of_an_arange_is_arithmetic() -> None:
    b = Builder()
    at = b.input("at", (4,), "i64")
    check(program(b, b.gather(b.iota(3), [ix.var("g0")], [at], (4,))))


def test_gather_out_of_range_is_an_error() -> None:
    b = Builder()
    p = program(b, b.gather(b.input("x", (3,), "f32"), [ix.var("g0")], [b.input("at", (2,), "i64")], (2,)))
    with pytest.raises(IndexError, match=r"leaves \[0, 3\)"):
        evaluate.run(to_terms(p), {"x": np.zeros(3, np.float32), "at": np.array([0, 3])})


def test_results_that_are_inputs_views_or_constants_are_copies() -> None:
    b = Builder()
    x = b.input("x", (2, 3), "f32")
    terms = check(program(b, x, b.permute(x, [1, 0]), b.reshape(x, (6,)), b.iota(4), b.full((2, 2), 7.0, "f32"), b.const(3, "i64")))
    assert [r.val.op for r in terms.results] == ["load", "load", "load", "iota", "lit", "lit"]
    assert [r.shape for r in terms.results] == [(2, 3), (3, 2), (6,), (4,), (2, 2), ()]


def test_a_value_may_be_stored_over_axes_that_it_does_not_vary_along() -> None:
    b = Builder()
    row = b.apply("exp", b.expand(b.input("x", (3,), "f32"), (4, 3)))
    terms = check(program(b, b.reduce("sum", row, [0]), b.reduce("prod", b.full((5,), 2.0, "f32"), [0])))
    (_, load, axes) = terms.seams[0]
    assert load.attr[0].val.free != load.attr[0].mask == sum(a.bit for a in axes)


# text and verifier


def test_shared_terms_print_once() -> None:
    x = tm.load(InputBuf("x", (4,), "f32"), (ix.var("a0"),), 1)
    e = tm.apply("exp", x)
    s = tm.apply("mul", e, e)
    assert tm.show(tm.apply("add", s, tm.reduce("sum", e, 1))) == "  v0 = exp(x[a0])\n(v0 * v0) + sum{a0}(v0)"


def test_text_of_a_deep_term_is_short() -> None:
    v = tm.load(InputBuf("x", (4,), "f32"), (ix.var("a0"),), 1)
    for _ in range(200):
        v = tm.apply("add", v, v)
    assert len(tm.show(v).splitlines()) == 200


def example() -> TermProgram:
    b = Builder()
    x = b.apply("exp", b.input("x", (4, 6), "f32"))
    return to_terms(program(b, b.apply("add", x, b.along(x, 0, ix.var("d0") * -1 + 3, 4))))


def _with(terms: TermProgram, val: tm.Val) -> TermProgram:
    return replace(terms, results=(replace(terms.results[0], val=val),))


def broken() -> dict[str, TermProgram]:
    terms = example()
    x = InputBuf("x", (4, 6), "f32")
    (name, load, order), *seams = terms.seams
    result: Result = terms.results[0]
    a0, a1 = ix.var("a0"), ix.var("a1")
    stray = AxisTable([replace(terms.axes.axes[0], id=3)])
    return {
        "leaves": _with(terms, tm.load(x, (a0, a1 + 1), 3)),
        "below zero": _with(terms, tm.load(x, (a0, a1 - 1), 3)),
        "coordinates": _with(terms, tm.load(x, (a0,), 1)),
        "unknown variables": _with(terms, tm.load(x, (a0, ix.var("a7")), 1)),
        "data-dependent without its value": _with(terms, tm.load(x, (a0, ix.var("g0")), 1)),
        "free axes": _with(terms, tm.load(x, (a0, ix.const(0)), 3)),
        "not axes of the program": _with(terms, tm.scan("sum", tm.load(x, (a0, a1), 3), 4)),
        "hold the value": replace(terms, results=(replace(result, axes=result.axes[:1]),)),
        "the shape": replace(terms, results=(replace(result, shape=(4, 5)),)),
        "appears twice": replace(terms, results=(replace(result, axes=(result.axes[0], result.axes[0])),)),
        "a seam": replace(terms, seams=((name, load.attr[0].val, order), *seams)),
        "order of a seam": replace(terms, seams=((name, load, order[:1]), *seams)),
        "another dtype": replace(terms, equalities=((load, tm.cast(load, "f16")),)),
        "more axes": replace(terms, equalities=((tm.number("f32", 0.0), load),)),
        "ids": replace(terms, axes=stray),
        "arguments": _with(terms, tm.apply("add", load)),
    }


@pytest.mark.parametrize("fault", sorted(broken()))
def test_the_verifier_refuses(fault: str) -> None:
    tm.verify(example())
    with pytest.raises(VerifyError):
        tm.verify(broken()[fault])


def test_the_verifier_tries_every_point_where_an_enclosure_is_too_wide() -> None:
    x = ix.var("a0") + ix.var("a0") * -1  # 0, but its enclosure is [-3, 3]
    val = tm.load(InputBuf("x", (1,), "f32"), (x,), 1)
    axes = AxisTable([tm.Axis(0, "a0", 4)])
    tm.verify(TermProgram(axes, (Result(val, tuple(axes.axes), (4,), "out0"),), (), (), ()))


# semantics


def array(axes: str, values: object, dtype: str = "float32") -> NamedArray:
    return NamedArray(tuple(axes), np.asarray(values, dtype))


def test_operands_meet_by_name() -> None:
    out = named.apply("sub", array("ij", [[1, 2], [3, 4]]), array("ji", [[10, 20], [30, 40]]))
    np.testing.assert_array_equal(out.over({"i": 2, "j": 2}), [[-9, -28], [-17, -36]])
    np.testing.assert_array_equal(out.over({"j": 2, "k": 1, "i": 2}), [[[-9, -17]], [[-28, -36]]])
    with pytest.raises(ValueError, match="not among"):
        out.over({"i": 2})


def test_a_reduction_counts_axes_that_its_operand_does_not_vary_along() -> None:
    x = array("i", [1, 2])
    np.testing.assert_array_equal(named.reduce("sum", x, {"k": 3}, "f32").array, [3, 6])
    np.testing.assert_array_equal(named.reduce("prod", x, {"k": 3, "i": 2}, "f32").array, 8)
    np.testing.assert_array_equal(named.reduce("max", x, {"k": 3}, "f32").array, [1, 2])


@pytest.mark.parametrize(
    ("monoid", "dtype", "identity"),
    [("sum", "f32", 0), ("prod", "f32", 1), ("max", "f32", -INF), ("min", "f32", INF), ("max", "i32", -(2**31)), ("any", "bool", False)],
)
def test_an_empty_reduction_is_the_identity(monoid: str, dtype: str, identity: float) -> None:
    x = array("i", np.zeros(2), {"f32": "float32", "i32": "int32", "bool": "bool"}[dtype])
    found = named.reduce(monoid, x, {"k": 0}, dtype)
    assert found.axes == ("i",)
    np.testing.assert_array_equal(found.array, [identity, identity])


@pytest.mark.parametrize(
    ("name", "values", "want"),
    [
        ("argmax", [1, 3, 3], 1),
        ("argmin", [1, 3, 1], 0),
        ("argmax", [1, NAN, INF, NAN], 1),
        ("argmin", [1, NAN, -INF], 1),
        ("argmax", [-INF, -INF], 0),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_argmax_takes_nan_first_then_the_first_best(name: str, values: list[float], want: int, dtype: str) -> None:
    import ml_dtypes

    x = array("i", values).array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert named.argreduce(name, NamedArray(("i",), x), {"i": len(values)}).array == want


def test_argmax_flattens_in_the_order_given() -> None:
    x = array("ij", [[0, 0, 5], [0, 7, 0]])
    assert named.argreduce("argmax", x, {"i": 2, "j": 3}).array == 4
    assert named.argreduce("argmax", x, {"j": 3, "i": 2}).array == 3
    assert named.argreduce("argmax", x, {"k": 2, "i": 2, "j": 3}).array == 4


def test_scan_is_inclusive() -> None:
    x = array("ij", [[1, 2], [3, 4]])
    np.testing.assert_array_equal(named.scan("sum", x, {"i": 2}).over({"i": 2, "j": 2}), [[1, 2], [4, 6]])
    np.testing.assert_array_equal(named.scan("sum", array("", 2), {"k": 3}).array, [2, 4, 6])


def test_twist_is_a_weighted_sum_with_its_key_reduced_first() -> None:
    s, v = array("ij", [[1, 2, 400], [0, -INF, 0]], "float64"), array("jc", [[1, 2], [3, 4], [5, 6]], "float64")
    found = named.twist("softmax", s, v, {"j": 3}, "f64")
    weights = np.exp(s.array - s.array.max(1, keepdims=True))
    np.testing.assert_allclose(found.over({"i": 2, "c": 2}), weights @ v.array, rtol=1e-15)  # one rounding of a sum of three


def test_casts_truncate_round_and_wrap() -> None:
    x = array("i", [-1.5, 300.7, 0.1])
    np.testing.assert_array_equal(named.cast(x, "i64").array, [-1, 300, 0])
    np.testing.assert_array_equal(named.cast(x, "u8").array, [255, 44, 0])
    np.testing.assert_array_equal(named.cast(x, "bool").array, [True, True, True])
    assert named.cast(x, "f16").array.dtype == np.float16
    assert named.cast(x, "f16", float64=True).array.dtype == np.float64


def test_float64_mode_rounds_nowhere() -> None:
    b = Builder()
    x = b.cast(b.apply("add", b.cast(b.input("x", (2,), "bf16"), "f32"), 2.0**-20), "bf16")
    p = program(b, x)
    import ml_dtypes

    one = np.ones(2, ml_dtypes.bfloat16)
    (exact,), (oracle,) = evaluate.run(to_terms(p), {"x": one}), evaluate.run(to_terms(p), {"x": one}, float64=True)
    np.testing.assert_array_equal(exact, one)
    np.testing.assert_array_equal(oracle, 1 + 2.0**-20)
    assert (exact.dtype, oracle.dtype) == (ml_dtypes.bfloat16, np.float64)


def test_temporaries_are_read_by_name() -> None:
    axes = AxisTable()
    a, c = axes.add(2), axes.add(3)
    temp = tm.TempBuf("t", a.bit | c.bit, "f32")
    whole, swapped = tm.pointwise(temp, axes), tm.load(temp, (ix.const(1), ix.var(c.name)), c.bit)
    values = np.arange(6.0).reshape(2, 3)
    found = evaluate.evaluate([whole, swapped], axes, {}, temps={"t": NamedArray((a.name, c.name), values)})
    np.testing.assert_array_equal(found[0].over({a.name: 2, c.name: 3}), values)
    np.testing.assert_array_equal(found[1].array, values[1])


def test_terms_are_shared() -> None:
    x = tm.load(InputBuf("x", (4,), "f32"), (ix.var("a0"),), 1)
    assert tm.apply("exp", x) is tm.apply("exp", x)
    assert Stored(tm.apply("exp", x), 1) == Stored(tm.apply("exp", x), 1)
    assert tm.reduce("sum", x, 0) is x
