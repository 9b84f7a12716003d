"""Axis inference: which dims share an axis, where a dim is cut, and which reads are renamed instead."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy_eq import evaluate, tensor_ir
from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.axes import infer
from emmy_eq.errors import Unsupported
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.lower.norms import softmax
from emmy_eq.lower.products import matmul
from emmy_eq.to_terms import private_maps, to_terms

from .random_programs import build
from .term_checks import check, extents, inputs_of, program, seam


def computed(b: Builder, name: str, *shape: int) -> Value:
    """A tensor that is computed, so that its readers must agree on its axes or rename."""
    return b.apply("tanh", b.input(name, shape, "f32"))


def loads(terms: tm.TermProgram) -> list[tm.Val]:
    """Reads of computed tensors, in topological order."""
    return [v for v in tm.topological([r.val for r in terms.results]) if v.op == "load" and isinstance(v.attr[0], tm.Stored)]


def reductions(terms: tm.TermProgram) -> list[tuple[str, int]]:
    return [load.attr[0].val.attr for _, load, _ in terms.seams if load.attr[0].val.op == "reduce"]


def test_softmax_reduces_an_input_over_one_axis() -> None:
    b = Builder()
    terms = check(program(b, softmax(b, b.input("x", (3, 5), "f32"), 1)))
    assert extents(tuple(terms.axes.axes)) == [3, 5]
    assert reductions(terms) == [("max", 2), ("sum", 2)]


def test_attention_has_five_axes_and_three_reductions_over_the_keys() -> None:
    b = Builder()
    q, k, v = (b.input(n, s, "f32") for n, s in (("q", (2, 5, 4)), ("k", (2, 6, 4)), ("v", (2, 6, 3))))
    scores = b.apply("mul", matmul(b, q, b.permute(k, [0, 2, 1])), 0.5)
    terms = check(program(b, matmul(b, softmax(b, scores, 2), v)))
    assert sorted(extents(tuple(terms.axes.axes))) == [2, 3, 4, 5, 6]
    (first, *over_keys) = reductions(terms)
    assert first[0] == "sum"
    assert [op for op, _ in over_keys] == ["max", "sum", "sum"]
    assert len({mask for _, mask in over_keys} - {first[1]}) == 1
    assert not terms.equalities


def test_self_attention_reads_keys_and_values_under_the_key_axis() -> None:
    b = Builder()
    x = computed(b, "x", 6, 8)
    q, k, v = (matmul(b, x, b.input(n, (8, 8), "f32")) for n in ("wq", "wk", "wv"))
    found = matmul(b, softmax(b, matmul(b, q, b.permute(k, [1, 0])), 1), v)
    terms = check(program(b, b.apply("add", x, found)))
    tokens = {seam(terms, t)[1][0] for t in (x, q, k, v)}
    assert len(tokens) == 1  # projections, residual: one token axis
    renamed = [v.attr[0].val for v in loads(terms) if not tm.is_pointwise(v, terms.axes)]
    assert renamed == [seam(terms, k)[0], seam(terms, v)[0]]


def test_a_product_with_its_transpose_renames_one_operand() -> None:
    b = Builder()
    x = computed(b, "x", 6, 4)
    out = matmul(b, x, b.permute(x, [1, 0]))
    terms = check(program(b, out))
    (rows, columns), (row, _) = seam(terms, out)[1], seam(terms, x)[1]
    assert rows == row != columns
    assert len(terms.axes.axes) == 3
    ((load, again),) = terms.equalities  # tanh(x) once more under the column axis
    assert again.op == "tanh"
    assert load.free == columns.bit | seam(terms, x)[1][1].bit


def test_a_transposed_sum_is_refused_not_wrong() -> None:
    b = Builder()
    x = computed(b, "x", 5, 5)
    terms = check(program(b, b.apply("add", x, b.permute(x, [1, 0])), b.apply("add", b.reduce("sum", x, [0]), b.reduce("sum", x, [1]))))
    assert len(terms.axes.axes) == 2


def test_a_view_cuts_the_dims_that_run_along_it() -> None:
    b = Builder()
    x = computed(b, "x", 6, 32)
    wide = b.apply("exp", x)
    heads = b.reshape(wide, (6, 4, 8))
    out = b.reduce("sum", b.apply("neg", heads), [2])
    terms = check(program(b, out, x))
    assert extents(seam(terms, x)[1]) == [6, 4, 8]  # the cut travels against the arrows
    assert not terms.equalities
    assert all(tm.is_pointwise(v, terms.axes) for v in loads(terms))


def test_splits_that_do_not_nest_leave_the_second_view_renamed() -> None:
    b = Builder()
    x = computed(b, "x", 6)
    one, two = b.apply("exp", b.reshape(x, (2, 3))), b.apply("neg", b.reshape(x, (3, 2)))
    terms = check(program(b, one, two, b.reshape(one, (3, 2))))
    assert extents(seam(terms, x)[1]) == [2, 3]
    assert len(terms.equalities) == 3  # x under two other views, and exp under the last of them
    text = tm.show(terms)
    assert "//3" in text
    assert "%3" in text


def test_repeated_heads_share_the_axis_of_the_head_that_they_repeat() -> None:
    b = Builder()
    q, k = computed(b, "q", 6, 5), computed(b, "k", 2, 5)
    out = b.apply("mul", q, b.along(k, 0, ix.var("d0") // 3, 6))
    terms = check(program(b, out))
    assert extents(seam(terms, out)[1]) == [2, 3, 5]
    assert not terms.equalities
    assert seam(terms, k)[1] == tuple(seam(terms, out)[1][i] for i in (0, 2))


def test_repeated_heads_of_an_input_are_read_without_division() -> None:
    b = Builder()
    out = b.apply("exp", b.along(b.input("k", (2, 5), "f32"), 0, ix.var("d0") // 3, 6))
    terms = check(program(b, out))
    assert "//" not in tm.show(terms)


def test_dims_of_one_element_have_no_axis() -> None:
    b = Builder()
    x = computed(b, "x", 1, 4, 1)
    terms = check(program(b, b.apply("add", b.reduce("sum", x, [0]), 1.0)))
    assert extents(tuple(terms.axes.axes)) == [4]


def test_a_scanned_dim_stays_whole() -> None:
    b = Builder()
    x = computed(b, "x", 12)
    out = b.apply("neg", b.reshape(b.scan("sum", x, 0), (3, 4)))
    terms = check(program(b, out))
    assert extents(seam(terms, x)[1]) == [12]
    assert extents(seam(terms, out)[1]) == [3, 4]


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_argmax_counts_in_the_order_of_dims(op: str) -> None:
    b = Builder()
    x = b.apply("floor", b.input("x", (4, 6), "f32"))  # ties: the first best wins, and first depends on the order
    p = program(b, b.reduce(op, x, [0, 1]), b.reduce(op, b.permute(x, [1, 0]), [0, 1]), b.reduce(op, b.reshape(x, (2, 12)), [0, 1]))
    for seed in range(5):
        check(p, inputs_of(p, seed))


def test_an_empty_axis_is_an_axis() -> None:
    b = Builder()
    x = b.input("x", (3, 0), "f32")
    terms = check(program(b, b.reduce("sum", x, [1]), b.apply("exp", x), b.reduce("max", b.apply("exp", x), [1])))
    assert sorted(extents(tuple(terms.axes.axes))) == [0, 3]


def test_reads_of_no_element_need_not_be_in_bounds() -> None:
    b = Builder()
    x = b.input("x", (5, 3), "f32")
    none = b.along(x, 0, ix.var("d0") + 5, 0)  # x[5:]
    check(program(b, none, b.apply("exp", none), b.reduce("max", none, [0]), b.reduce("prod", b.apply("exp", none), [0, 1])))


def chain(layers: int) -> tuple[Builder, Value]:
    """``layers`` of x = tanh(x @ w + max over its own pairwise sums): each has a hidden and a pair axis of its own."""
    b = Builder()
    x = computed(b, "x", 4, 6)
    for k in range(layers):
        x = b.apply("tanh", matmul(b, matmul(b, x, b.input(f"w{k}", (6, 5), "f32")), b.input(f"v{k}", (5, 6), "f32")))
    return b, x


def test_axes_that_never_meet_share_an_id_when_there_are_too_many() -> None:
    b, x = chain(70)  # a hidden axis a layer
    p = program(b, x)
    terms = check(p)
    assert len(terms.axes.axes) <= 62


def test_sharing_keeps_the_value() -> None:
    b, x = chain(4)
    p = private_maps(program(b, x))
    free = len(infer(p).table.axes)
    tight = infer(p, limit=free - 1)
    assert len(tight.table.axes) < free
    for dims in tight.dims:
        axes = [a for dim in dims for a in dim]
        assert len(set(axes)) == len(axes)


def test_too_many_axes_are_refused() -> None:
    b, x = chain(1)
    with pytest.raises(Unsupported, match="more than 2 loop axes"):
        infer(private_maps(program(b, x)), limit=2)


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_random_programs(rng: Random) -> None:
    check(build(rng))


def test_exact_mode_has_the_dtypes_of_the_program() -> None:
    b = Builder()
    x = b.cast(b.input("x", (3, 4), "bf16"), "f32")
    p = program(b, b.cast(b.reduce("sum", x, [1]), "bf16"), b.reduce("argmax", x, [1]))
    found = evaluate.run(to_terms(p), inputs_of(p))
    want = tensor_ir.run(p, inputs_of(p))
    for got, expected in zip(found, want, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
