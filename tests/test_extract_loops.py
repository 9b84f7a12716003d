"""Placing terms in a nest, and its normal form, on terms by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emmy_eq import index as ix
from emmy_eq import loop_ir
from emmy_eq import terms as tm
from emmy_eq.extract.loops import build
from emmy_eq.extract.nest import Output, Unrealisable
from emmy_eq.terms import Axis, AxisTable, InputBuf, Val


class Terms:
    """Axes i < 4, j < 8, k < 16 and reads of inputs over them."""

    def __init__(self) -> None:
        self.axes = AxisTable()
        self.i, self.j, self.k = (self.axes.add(n) for n in (4, 8, 16))

    def read(self, name: str, *axes: Axis) -> Val:
        buf = InputBuf(name, tuple(a.extent for a in axes), "f32")
        return tm.load(buf, tuple(ix.var(a.name) for a in axes), sum(a.bit for a in axes))

    def text(self, *outputs: tuple[Val, Sequence[Axis]]) -> str:
        stored = [Output(f"out{n}" if n else "out", v, tuple(over)) for n, (v, over) in enumerate(outputs)]
        kernel = build("k", stored, self.axes, {})
        loop_ir.verify(kernel)
        assert loop_ir.parse(loop_ir.show(kernel)) == kernel
        return loop_ir.show(kernel)


@pytest.fixture
def t() -> Terms:
    return Terms()


def test_contiguous_axes_become_one(t: Terms) -> None:
    y = tm.apply("exp", t.read("x", t.i, t.j))
    assert t.text((y, (t.i, t.j))) == (
        "kernel k(x: f32[32]) -> out: f32[32]:\n  loop i0 < 32:\n    v0 = load x[i0]\n    v1 = exp v0\n    store out[i0] = v1\n"
    )


def test_a_transpose_keeps_them_apart(t: Terms) -> None:
    text = t.text((t.read("x", t.i, t.j), (t.j, t.i)))
    assert "loop i0 < 8, i1 < 4:\n    v0 = load x[i1, i0]\n    store out[i0, i1] = v0" in text


def test_a_flat_buffer_gets_the_dims_that_its_addresses_have(t: Terms) -> None:
    flat = InputBuf("x", (32,), "f32")
    x = tm.load(flat, (ix.var("a0") * 8 + ix.var("a1"),), 3)
    assert "x: f32[4,8]" in t.text((x, (t.j, t.i)))


def test_folds_that_do_not_need_each_other_are_one(t: Terms) -> None:
    x = t.read("x", t.i, t.j)
    y = tm.apply("add", tm.reduce("sum", x, t.j.bit), tm.reduce("max", x, t.j.bit))
    text = t.text((y, (t.i,)))
    assert text.count("fold") == 1
    assert text.count("carry") == 2
    assert text.count("load") == 1


def test_a_fold_that_needs_another_comes_after_it(t: Terms) -> None:
    x = t.read("x", t.i, t.j)
    y = tm.reduce("sum", tm.apply("sub", x, tm.reduce("max", x, t.j.bit)), t.j.bit)
    text = t.text((y, (t.i,)))
    assert text.count("fold i1 < 8:") == 2
    assert text.index("max(") < text.index("sum(")


def test_the_row_of_a_softmax_is_an_inner_loop_over_the_same_axis(t: Terms) -> None:
    x = t.read("x", t.i, t.j)
    e = tm.apply("exp", tm.apply("sub", x, tm.reduce("max", x, t.j.bit)))
    text = t.text((tm.apply("div", e, tm.reduce("sum", e, t.j.bit)), (t.i, t.j)))
    assert [line.strip() for line in text.splitlines() if line.endswith(":")][1:] == [
        "loop i0 < 4:", "fold i1 < 8:", "fold i1 < 8:", "loop i1 < 8:",
    ]  # fmt: skip


def test_weighted_sums_with_one_key_are_one_carry_and_share_its_maximum(t: Terms) -> None:
    s, v = t.read("s", t.i, t.j), t.read("v", t.j, t.k)
    top = tm.twist("softmax", s, v, t.j.bit)
    bottom = tm.twist("softmax", s, tm.number("f32", 1.0), t.j.bit)
    shifted = tm.apply("add", tm.apply("div", top, bottom), tm.reduce("max", s, t.j.bit))
    text = t.text((shifted, (t.i, t.k)))
    assert text.count("carry") == 1
    assert text.count("fold") == 1


def test_an_axis_that_is_bound_again_is_renamed(t: Terms) -> None:
    """sum over k of (x[i,j,k] - max over j of x[i,j,k]): within the loop over j, the maximum runs over another j."""
    x = t.read("x", t.i, t.j, t.k)
    y = tm.reduce("sum", tm.apply("sub", x, tm.reduce("max", x, t.j.bit)), t.k.bit)
    text = t.text((y, (t.i, t.j)))
    assert "fold i2 < 16:\n      v0 = load x[i0, i1, i2]\n      fold i3 < 8:\n        v1 = load x[i0, i3, i2]" in text


def test_a_scan_is_a_fold_with_an_observer(t: Terms) -> None:
    x = t.read("x", t.i, t.j)
    y = tm.apply("mul", tm.scan("sum", x, t.j.bit), t.read("w", t.j))
    text = t.text((y, (t.i, t.j)))
    assert text.count("observe:") == 1
    assert text.index("observe:") < text.index("store")


@pytest.mark.parametrize("kind", ["scan", "sum"])
def test_what_waits_for_the_end_of_a_scan_needs_a_cut(t: Terms, kind: str) -> None:
    inner = tm.scan("sum", t.read("x", t.i, t.j), t.j.bit)
    outer = tm.scan("sum", inner, t.j.bit) if kind == "scan" else tm.reduce("sum", inner, t.j.bit)
    with pytest.raises(Unrealisable) as caught:
        t.text((outer, (t.i, t.j) if kind == "scan" else (t.i,)))
    assert caught.value.cuts == (inner,)


def test_outputs_of_one_nest(t: Terms) -> None:
    x = t.read("x", t.i, t.j)
    total = tm.reduce("sum", x, t.j.bit)
    text = t.text((tm.apply("div", x, total), (t.i, t.j)), (total, (t.i,)))
    assert text.index("store out1[i0]") < text.index("loop i1 < 8:")


def test_outputs_that_do_not_fit_one_nest_are_refused(t: Terms) -> None:
    with pytest.raises(Unrealisable, match="many times"):
        t.text((t.read("x", t.i, t.j), (t.i, t.j)), (t.read("y", t.i), (t.i,)), (t.read("z", t.j), (t.j,)))


def test_no_parallel_axes(t: Terms) -> None:
    text = t.text((tm.reduce("sum", t.read("x", t.i, t.j), t.i.bit | t.j.bit), ()))
    assert text.startswith("kernel k(x: f32[32]) -> out: f32[]:\n  fold i0 < 32:")


def test_positions_flatten_in_axis_order(t: Terms) -> None:
    """The largest stride would come first; an argmax counts i before j whatever the layout."""
    x = t.read("x", t.j, t.i)
    assert "fold i0 < 4, i1 < 8:" in t.text((tm.argreduce("argmax", x, 3), ()))
    assert "fold i0 < 32:" in t.text((tm.reduce("max", x, 3), ()))


def test_operand_order_is_that_of_structure(t: Terms) -> None:
    x, y = t.read("x", t.i), t.read("y", t.i)
    left = tm.apply("add", tm.apply("add", x, x), y)
    right = tm.apply("add", y, tm.apply("add", x, x))
    swapped = tm.apply("add", x, tm.apply("add", y, y))
    kernels = [build("k", [Output("out", v, (t.i,))], t.axes, {}) for v in (left, right, swapped)]
    assert kernels[0] == kernels[1]
    assert len({loop_ir.identity(k) for k in kernels}) == 1
    assert loop_ir.ops(kernels[0]) == {"add": 2, "load": 2, "store": 1}
