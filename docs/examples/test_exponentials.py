"""What a rule's tests look like: the rule, what it is for, and whole programs in which it takes part."""

import torch
from exponentials import exp_of_sum
from hypothesis import given, settings

import emmy_eq
from emmy_eq.rule import Rule
from emmy_eq.rules import active
from emmy_eq.testing import Source, assert_equivalent, check_program, check_rule, programs


def test_it_holds(rule: Rule) -> None:
    assert check_rule(rule).holds


def test_it_joins_what_it_is_for() -> None:
    x = torch.randn(3, 8)
    assert_equivalent(lambda a: a.exp().prod(1), lambda a: a.sum(1).exp(), (x,), rules=[*active(), exp_of_sum])


def test_the_exponential_leaves_the_fold() -> None:
    x = torch.randn(3, 8)
    fast = emmy_eq.compile(lambda a: a.exp().prod(1), (x,), rules=[exp_of_sum])
    assert "carry v1 = sum(v0)" in fast.show("loop")
    torch.testing.assert_close(fast(x), x.exp().prod(1))


@settings(max_examples=5, deadline=None)
@given(programs(steps=4))
def test_programs_stay_right(source: Source) -> None:
    check_program(source.function(), source.tensors(), rules=[exp_of_sum])
