"""Each layer refutes what only it can, and abstains where it has nothing to say."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from emmy_eq import index as ix
from emmy_eq import rules
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Bool, Dtype, Equation, Rounding, Rule, rewrite, rule
from emmy_eq.verify import indices, solver
from emmy_eq.verify.check import EXTRACTIONS, FLOATS, ORDER, SOLVER, TYPING, check_on_draws, check_rule
from emmy_eq.verify.draws import Abstains

from .test_rules import add_zero, divide_one_factor, sinh_of_sum

LIBRARY = rules.library()


@rule(Rounding.REASSOCIATES)
def variance_of_squares(s: Val, k: Axes) -> Equation:
    """The same real number, but a difference of two that nearly agree."""
    n, mean = s.count(k), s.sum(k) / s.count(k)
    return rewrite(((s - mean) * (s - mean)).sum(k), (s * s).sum(k) - n * (mean * mean))


@rule(Rounding.REASSOCIATES)
def softmax_unshifted(s: Val, k: Axes) -> Equation:
    """The same real number, but the exponentials overflow."""
    top = s.max(k)
    return rewrite((s - top).exp() / (s - top).exp().sum(k), s.exp() / s.exp().sum(k))


@rule(Rounding.CONTRACTS)
def narrow_first(x: Val) -> Equation:
    """One rounding more, not one less."""
    return rewrite(x, x.cast("bf16").cast("f32"), when=x.has_dtype("f32"))


@pytest.mark.parametrize("wrong", [variance_of_squares, softmax_unshifted, narrow_first], ids=lambda r: r.name)
def test_only_floats_refute_what_holds_for_reals(wrong: Rule) -> None:
    assert check_rule(wrong).layer == FLOATS


def _overflowed(result: Val, *operands: Val) -> Val:
    """Infinite, though no operand is."""
    found = result.call("isinf")
    for x in operands:
        found = found.call("and", x.call("isinf").call("not"))
    return found


@rule(Rounding.REASSOCIATES)
def zero_for_overflow(x: Val) -> Equation:
    """Wrong only where the square overflows."""
    return rewrite(x * x, _overflowed(x * x, x).where(x.like(0.0), x * x))


@rule(Rounding.CONTRACTS)
def one_for_sum_that_overflows(x: Val, k: Axes) -> Equation:
    """Wrong only where the sum overflows."""
    return rewrite(x.sum(k), _overflowed(x.sum(k), abs(x).max(k)).where(x.like(1.0), x.sum(k)))


@rule(Rounding.REASSOCIATES)
def other_infinity(x: Val) -> Equation:
    """Of the other sign where it overflows."""
    y = x * abs(x)
    return rewrite(y, _overflowed(y, x).where(-y, y))


@rule(Rounding.REASSOCIATES)
def five_beyond_710(x: Val) -> Equation:
    """Wrong only where the exponential overflows in float64 too."""
    return rewrite(x.exp(), x.gt(x.like(710.0)).call("and", x.call("isinf").call("not")).where(x.like(5.0), x.exp()))


@rule(Rounding.REASSOCIATES)
def sigmoid_of_large(x: Val) -> Equation:
    """infinity by infinity where the left side is 1."""
    return rewrite(((-x).exp() + 1.0).reciprocal(), x.exp() / (x.exp() + 1.0))


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (zero_for_overflow, "left inf, right 0.0"),
        (one_for_sum_that_overflows, "right 1.0"),
        (other_infinity, "left inf, right -inf"),
        (five_beyond_710, "left inf, right 5.0"),
        (sigmoid_of_large, "right nan"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_floats_refute_what_is_wrong_where_it_overflows(wrong: Rule, shown: str) -> None:
    verdict = check_rule(wrong)
    assert verdict.layer == FLOATS
    assert shown in verdict.why


@rule(Rounding.CONTRACTS)
def drop_cast_that_overflows(x: Val) -> Equation:
    """What a down-cast lost has its value: the number that the left side stands for."""
    return rewrite(x.cast("f16").cast("f32"), x, when=x.has_dtype("f32"))


def test_a_value_in_place_of_an_overflow_may_be_the_right_one() -> None:
    assert check_on_draws(drop_cast_that_overflows, 30).holds


@rule(Rounding.CONTRACTS)
def drop_any_round_trip(x: Val, narrow: Dtype) -> Equation:
    """False where ``narrow`` is an integer: 1.5 becomes 1."""
    return rewrite(x.cast(narrow).cast("f32"), x, when=x.has_dtype("f32"))


def test_a_dtype_of_a_rule_may_be_an_integer() -> None:
    found = check_rule(drop_any_round_trip).counterexample
    assert found is not None
    assert dict(found.args)["narrow"] in ("i32", "i64")


@pytest.mark.parametrize("name", ["merge_sum", "factor_out_of_sum", "divide_last", "drop_round_trip"])
def test_a_rule_that_rounds_is_not_exact(name: str) -> None:
    assert check_rule(replace(LIBRARY[name], rounding=Rounding.EXACT)).layer in (ORDER, FLOATS)  # ORDER: an infinity that became NaN


@rule(Rounding.EXACT)
def greatest_of_empty(v: Val, k: Axes) -> Equation:
    """False where an axis of k is empty: the greatest of nothing is -inf."""
    return rewrite(v.max(k), v.max(k & v.free))


@rule(Rounding.REASSOCIATES)
def greatest_of_scaled(a: Val, c: Val, k: Axes) -> Equation:
    """False where c is negative."""
    return rewrite((a * c).max(k), a.max(k) * c, when=c.free_of(k))


@pytest.mark.parametrize("wrong", [greatest_of_empty, greatest_of_scaled], ids=lambda r: r.name)
def test_exact_order_refutes(wrong: Rule) -> None:
    assert check_rule(wrong).layer == ORDER


@rule(Rounding.EXACT)
def sum_of_bools(c: Bool, a: Val) -> Equation:
    """A bool is no number of a's dtype."""
    return rewrite(c.where(a, a), c.where(a, a).ne(a))


def test_typing_refutes() -> None:
    assert check_rule(sum_of_bools).layer == TYPING


@rule(Rounding.EXACT)
def never_matches(a: Val, k: Axes) -> Equation:
    """Nothing asks what is smaller than itself."""
    return rewrite(a + a, a + a, when=k.smaller_than(k))


def test_a_rule_that_egglog_never_matches_is_refused() -> None:
    verdict = check_rule(never_matches)
    assert (verdict.layer, verdict.why) == (EXTRACTIONS, "egglog never matched it")


@pytest.mark.parametrize("name", ["commute_mul", "maximum_of_same", "widen_bf16_to_f32_and_back", "divide_last", "raise_constant_factor"])
def test_the_solver_proves(name: str) -> None:
    assert solver.refutes(LIBRARY[name]) is None


def test_the_solver_refutes_with_values() -> None:
    assert solver.refutes(add_zero) == "x = -0.0: left +0.0, right -0.0"
    found = solver.refutes(divide_one_factor)
    assert found is not None
    assert "z = " in found


@pytest.mark.parametrize("beyond", [sinh_of_sum, LIBRARY["merge_sum"]], ids=lambda r: r.name)
def test_the_solver_abstains_from_what_it_cannot_tell(beyond: Rule) -> None:
    with pytest.raises(Abstains):
        solver.refutes(beyond)


def test_without_z3_the_layer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    solver.refutes.cache_clear()
    said = check_rule(LIBRARY["commute_eq"], 5).layers[SOLVER]
    solver.refutes.cache_clear()
    assert said == "abstains: z3-solver is not installed (pip install z3-solver)"


def test_simplified_indices_are_proved() -> None:
    assert indices.simplify_refuted(60) is None


def test_wrong_index_rules_are_refuted() -> None:
    i, j = ix.var("i"), ix.var("j")
    assert indices.refutes((i * 3) // 2, i * (ix.const(3) // 2), indices.EXTENTS) is not None
    assert indices.refutes(i // 3 * 3, i, indices.EXTENTS) is not None
    assert indices.refutes((i * 4 + j) // 4, i, indices.EXTENTS) is None
    assert indices.refutes((i * 4 + j) // 4, i, {**indices.EXTENTS, "j": 5}) is not None


def test_what_each_layer_said_is_kept() -> None:
    said = check_on_draws(LIBRARY["reciprocal_of_sqrt"], 20).layers
    assert said[FLOATS] == "20 draws"
    assert "is no fraction" in said[ORDER]
