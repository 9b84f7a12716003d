"""One-pass forms: every row of `emmy_eq.ops.twists` read as a rewrite, and the spellings that lead to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emmy_eq import ops
from emmy_eq.algebra import Axes, Val
from emmy_eq.rule import Dtype, Equation, Phase, Rounding, Rule, rewrite, rule


def _family(row: ops.Twist) -> Iterator[Rule]:
    """A row of magnitudes has a second spelling: its weight does not see a sign.  It protects from overflow, which is lost where
    factors leave the weight, so that its rules come before all algebra and keep the weight together."""
    phase = Phase.NORMALIZE if row.magnitudes else Phase.TWIST
    for signed in (False, True) if row.magnitudes else (False,):
        name = f"twist_{row.name}{'_signed' if signed else ''}"

        def weighed(s: Val, k: Axes, signed: bool = signed) -> tuple[Val, Val]:
            """The fold's operand, and its weight as spelled."""
            operand = abs(s) if row.magnitudes else s
            return operand, row.weight(s if signed else operand, row.centre(operand.reduce(row.key, k), operand.count(k)))

        @rule(Rounding.REASSOCIATES, phase, name)
        def unweighted(s: Val, k: Axes, weighed: Any = weighed) -> Equation:
            """A sum of weights against their own key takes one pass over k: the sum follows the key as that grows."""
            operand, weight = weighed(s, k)
            return rewrite(weight.sum(k), operand.twist(row.name, s.like(1.0), k), keeps=weight if row.magnitudes else None)

        @rule(Rounding.REASSOCIATES, phase, f"{name}_weighted")
        def weighted(s: Val, v: Val, k: Axes, weighed: Any = weighed) -> Equation:
            """Values weighted so are summed in the same pass."""
            operand, weight = weighed(s, k)
            return rewrite((weight * v).sum(k), operand.twist(row.name, v, k), keeps=weight if row.magnitudes else None)

        @rule(Rounding.REASSOCIATES, phase, f"{name}_rounded")
        def rounded(s: Val, v: Val, r: Val, narrow: Dtype, k: Axes, weighed: Any = weighed) -> Equation:
            """Weights that are scaled alike (softmax: by one over their sum) and rounded to the type of the values, are rounded
            first: of at most 1, they lose no range by that."""
            operand, weight = weighed(s, k)
            when = (s.has_dtype("f32"), v.has_dtype(narrow), narrow.is_float(), r.free_of(k))
            return rewrite(((weight * r).cast(narrow).cast("f32") * v.cast("f32")).sum(k), r * operand.twist(row.name, v, k), when=when)

        yield unweighted
        if row.adjust is None:
            yield weighted
        if row.adjust is None and not row.magnitudes:  # programs scale and round a softmax, no norm
            yield rounded


@rule(Rounding.REASSOCIATES, Phase.TWIST)
def shift_by_finite_maximum(s: Val, k: Axes) -> Equation:
    """A sum of exponentials that shifts by the maximum only where that is finite (logsumexp) shifts always, and is chosen per row:
    the exponentials of a row whose maximum is -inf or inf add up to 0 or inf, as that of the maximum does."""
    top = s.max(k)
    infinite = top.call("isinf")
    return rewrite((s - infinite.where(s.like(0.0), top)).exp().sum(k), infinite.where(top.exp(), (s - top).exp().sum(k)))


@rule(Rounding.REASSOCIATES, Phase.TWIST, mends=True)
def running_logsumexp(s: Val, m: Val, k: Axes) -> Equation:
    """A running log-sum of exponentials under one shift for all prefixes (the row's maximum) is more exact under each prefix' own:
    prefixes far below the shift do not underflow."""
    top = s.scan("max", k)
    summed = s.running("softmax", s.like(1.0), k)
    return rewrite((s - m).exp().scan("sum", k).log() + m, top.call("isinf").where(top, summed.log() + top), when=m.free_of(k))


@rule(Rounding.CONTRACTS, Phase.TWIST, mends=True)
def linear_recurrence(a: Val, b: Val, k: Axes) -> Equation:
    """The closed form of h' = a*h + b, in which every term is divided by a running product and multiplied by a later one, is the
    recurrence.  That never divides: where the product underflows or is 0, the closed form is NaN and the recurrence has a value."""
    p = a.scan("prod", k)
    return rewrite(p * (b / p).scan("sum", k), a.running("recurrence", b, k))


@rule(Rounding.CONTRACTS, Phase.TWIST, mends=True)
def linear_recurrence_of_logs(a: Val, b: Val, k: Axes) -> Equation:
    """The same where the factors are given by their logarithms."""
    p = a.scan("sum", k)
    return rewrite(p.exp() * (b * (-p).exp()).scan("sum", k), a.exp().running("recurrence", b, k))


def rules() -> tuple[Rule, ...]:
    scans = (running_logsumexp, linear_recurrence, linear_recurrence_of_logs)
    return (shift_by_finite_maximum, *scans, *(r for row in ops.twists().values() if row.folds for r in _family(row)))
