"""Every active rule is tested from itself; wrong rules of kinds seen in the wild are refuted."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy_eq import rules
from emmy_eq.algebra import Axes, Val
from emmy_eq.errors import InvalidInput
from emmy_eq.rule import Equation, Int, Rounding, Rule, rewrite, rule
from emmy_eq.verify import field
from emmy_eq.verify.check import check_on_draws, check_rule
from emmy_eq.verify.draws import draws

LIBRARY = rules.library()


@pytest.mark.parametrize("name", LIBRARY)
@settings(max_examples=2)
@given(seed=st.integers(0, 2**32 - 1))
def test_rule_holds(name: str, seed: int) -> None:
    verdict = check_on_draws(LIBRARY[name], 4, seed)  # beside its certificate, which does not know what an op computes today
    assert verdict.holds, verdict


@rule(Rounding.REASSOCIATES)
def sinh_of_sum(x: Val, y: Val) -> Equation:
    """sinh(x+y) is sinh x cosh y + cosh x sinh y."""
    sinh, cosh = x.call("sinh"), y.call("cosh")
    return rewrite(sinh * cosh + cosh * sinh, (x + y).call("sinh"))


@rule(Rounding.EXACT)
def divide_one_factor(x: Int, y: Int, z: Int) -> Equation:
    """True only where z divides y."""
    return rewrite((x * y).call("floordiv", z), x * y.call("floordiv", z))


@rule(Rounding.REASSOCIATES)
def divide_by_itself(x: Val) -> Equation:
    """False at 0."""
    return rewrite(x / x, x.like(1.0))


@rule(Rounding.REASSOCIATES)
def multiply_by_zero(x: Val) -> Equation:
    """False at infinity and NaN."""
    return rewrite(x * 0.0, x.like(0.0))


@rule(Rounding.EXACT)
def add_zero(x: Val) -> Equation:
    """False at -0.0."""
    return rewrite(x + 0.0, x)


@rule(Rounding.REASSOCIATES)
def factor_out_unguarded(a: Val, b: Val, k: Axes) -> Equation:
    """False where a varies along k."""
    return rewrite((a * b).sum(k), a * b.sum(k))


@rule(Rounding.REASSOCIATES)
def softmax_without_rescale(s: Val, t: Val, k: Axes, j: Axes) -> Equation:
    """Two blocks have two maxima."""
    left, right = s.max(k), t.max(j)
    top = left.maximum(right)
    blocks = (s - left).exp().sum(k) + (t - right).exp().sum(j)
    return rewrite((s - top).exp().sum(k) + (t - top).exp().sum(j), blocks, when=(s.free_of(j), t.free_of(k)))


@rule(Rounding.REASSOCIATES)
def shift_out_of_max(a: Val, c: Val, k: Axes) -> Equation:
    """False where c varies along k."""
    return rewrite((a + c).max(k), a.max(k) + c)


@rule(Rounding.REASSOCIATES)
def exp_of_product(a: Val, b: Val) -> Equation:
    """The exponent of a product of exponentials is a sum."""
    return rewrite(a.exp() * b.exp(), (a * b).exp())


@rule(Rounding.REASSOCIATES)
def mean_of_means(a: Val, b: Val, k: Axes, j: Axes) -> Equation:
    """False for groups of unequal size."""
    n, m = a.count(k), b.count(j)
    return rewrite((a.sum(k) / n + b.sum(j) / m) / 2.0, (a.sum(k) + b.sum(j)) / (n + m))


@rule(Rounding.EXACT)
def twice_at_one_number(v: Val) -> Equation:
    """False at a number that no draw meets by chance."""
    return rewrite(v, v.eq(7777.0).where(v * 2.0, v))


@rule(Rounding.REASSOCIATES)
def lost_beyond_a_number(v: Val, k: Axes) -> Equation:
    """False beyond such a number."""
    return rewrite(v.sum(k), v.sum(k).gt(-7776.5).where(v.sum(k), v.like(0.0)))


@rule(Rounding.EXACT)
def one_less_than_an_integer(n: Int) -> Equation:
    """False next to such an integer."""
    return rewrite(n + n, n.lt(7776).where(n + n, n.gt(7776).where(n + n, n)))


WRONG = (
    sinh_of_sum, divide_one_factor, divide_by_itself, multiply_by_zero, add_zero, factor_out_unguarded, softmax_without_rescale,
    shift_out_of_max, exp_of_product, mean_of_means, twice_at_one_number, lost_beyond_a_number, one_less_than_an_integer,
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda r: r.name)
def test_wrong_rule_is_refuted_with_a_counterexample(wrong: Rule) -> None:
    verdict = check_rule(wrong, 50)
    assert not verdict.holds
    assert verdict.counterexample is not None
    assert all(name in str(verdict.counterexample) for name, _ in wrong.args)


@rule(Rounding.REASSOCIATES)
def add_in_another_order(v: Val, w: Val) -> Equation:
    """True, though its numbers are near the ends of some ranges."""
    return rewrite(v.maximum(1e4) * 3e30 + w.minimum(3e38), w.minimum(3e38) + 3e30 * v.maximum(1e4))


def test_numbers_that_a_rule_names_refute_no_true_one() -> None:
    verdict = check_on_draws(add_in_another_order, 50)
    assert verdict.holds, verdict


@rule(Rounding.REASSOCIATES)
def softmax_with_rescale(s: Val, t: Val, k: Axes, j: Axes) -> Equation:
    """What the wrong rule lacks."""
    left, right = s.max(k), t.max(j)
    top = left.maximum(right)
    blocks = (s - left).exp().sum(k) * (left - top).exp() + (t - right).exp().sum(j) * (right - top).exp()
    return rewrite((s - top).exp().sum(k) + (t - top).exp().sum(j), blocks, when=(s.free_of(j), t.free_of(k)))


def test_blocks_of_a_softmax_combine_with_a_rescale() -> None:
    # Modulo primes alone: in floats a block that is all -inf has a NaN rescale.
    held = [draw for draw in islice(draws(softmax_with_rescale, 0), 200) if all(field.residues(softmax_with_rescale, draw).when)]
    assert len(held) > 10
    assert not any(field.refutes(softmax_with_rescale, draw) for draw in held)


@rule(Rounding.REASSOCIATES)
def never_applies(a: Val, k: Axes) -> Equation:
    """The guard contradicts itself."""
    return rewrite(a, a + a, when=(k.is_empty(), k.not_empty()))


def test_a_guard_that_never_holds_proves_nothing() -> None:
    verdict = check_rule(never_applies, 5)
    assert (verdict.holds, verdict.draws, verdict.layer) == (False, 0, None)


def test_arguments_must_be_of_a_known_kind() -> None:
    def body(a: Val, n: int) -> Equation:
        return rewrite(a, a)

    with pytest.raises(InvalidInput, match="n must be annotated with one of Val, Bool, Int, Axes, Monoid, Dtype"):
        rule(Rounding.EXACT)(body)


def test_a_rule_prints_as_mathematics_and_as_egglog() -> None:
    factor = LIBRARY["divide_after_sum"]
    assert str(factor) == "sum[k](a / b) -> sum[k](a) / b   where b is free of k"
    (text,) = factor.to_egglog()
    assert text == (
        '(rule ((= root (Reduce "sum" (Div a b) k)) (= free0 (free b)) (= (& free0 k) 0)) '
        '((union root (Div (Reduce "sum" a k) b))) :ruleset algebra :name "divide_after_sum")'
    )
    assert factor.source.startswith("reductions.py:")


def test_contracts_admit_rules_by_rounding() -> None:
    strict, default, fast = (set(rules.active(accuracy)) for accuracy in ("strict", "default", "fast"))
    assert {r.rounding for r in strict} == {Rounding.EXACT}
    assert strict < default <= fast
    assert max(r.rounding for r in default) is Rounding.CONTRACTS


@pytest.mark.parametrize("name", LIBRARY)
def test_every_rule_says_why(name: str) -> None:
    chosen = LIBRARY[name]
    assert chosen.doc.endswith(".")
    assert str(chosen)
