"""Exponentials, logarithms, powers and roots.

Not here, since floats refute them: exp(log(a)) = a and sqrt(a)*sqrt(b) = sqrt(a*b) (a may be negative), log(a*b) = log(a) + log(b)
(both may be), pow(a, 0.5) = sqrt(a) (a may be -inf), exp(a*b) = exp(a)*exp(b).  What approximates are operations of the
hardware (`emmy_eq.ops.Fast`), not formulas: 2 sigmoid(2a) - 1 for tanh(a) gives 0 where a is tiny.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emmy_eq.algebra import Axes, Val
from emmy_eq.ops import ops
from emmy_eq.rule import Equation, Phase, Rounding, Rule, rewrite, rule


@rule(Rounding.EXACT, Phase.NORMALIZE)
def power_zero(a: Val) -> Equation:
    """Anything to the power 0 is 1, NaN included, as IEEE 754 has it."""
    return rewrite(a.call("pow", 0.0), a.like(1.0))


@rule(Rounding.EXACT, Phase.NORMALIZE)
def power_one(a: Val) -> Equation:
    """A first power is its base."""
    return rewrite(a.call("pow", 1.0), a)


@rule(Rounding.REASSOCIATES)
def power_two(a: Val) -> Equation:
    """A square is a product, at a sixteenth of the cost."""
    return rewrite(a.call("pow", 2.0), a * a)


@rule(Rounding.REASSOCIATES)
def power_three(a: Val) -> Equation:
    """A cube is two products."""
    return rewrite(a.call("pow", 3.0), (a * a) * a)


@rule(Rounding.CONTRACTS)
def add_exponents(a: Val, b: Val) -> Equation:
    """A product of exponentials is one of the sum, which rounds once less and overflows later."""
    return rewrite(a.exp() * b.exp(), (a + b).exp())


@rule(Rounding.CONTRACTS)
def subtract_exponents(a: Val, b: Val) -> Equation:
    """A quotient of exponentials is one of the difference."""
    return rewrite(a.exp() / b.exp(), (a - b).exp())


@rule(Rounding.CONTRACTS, mends=True)
def log_of_exp(a: Val) -> Equation:
    """A logarithm undoes an exponential, also one that overflows or underflows."""
    return rewrite(a.exp().log(), a)


@rule(Rounding.CONTRACTS, mends=True)
def log_of_softmax(a: Val, s: Val, k: Axes) -> Equation:
    """The logarithm of a softmax, which is -inf where the quotient underflows, is a difference."""
    total = s.exp().sum(k)
    return rewrite((a.exp() / total).log(), a - total.log())


@rule(Rounding.CONTRACTS)
def sqrt_of_square(a: Val) -> Equation:
    """The root of a square is the magnitude, also where the square overflows."""
    return rewrite((a * a).sqrt(), abs(a))


@rule(Rounding.REASSOCIATES)
def divide_by_sqrt(a: Val, b: Val) -> Equation:
    """A quotient by a root is a product with the reciprocal root, one operation of the hardware."""
    return rewrite(a / b.sqrt(), a * b.rsqrt())


@rule(Rounding.CONTRACTS)
def reciprocal_of_sqrt(a: Val) -> Equation:
    """The hardware's reciprocal square root rounds once."""
    return rewrite(a.sqrt().reciprocal(), a.rsqrt())


@rule(Rounding.EXACT, Phase.NORMALIZE)
def sigmoid_spelled_out(a: Val) -> Equation:
    """The reciprocal of 1 + exp(-a) is what sigmoid is defined as."""
    return rewrite((1.0 + (-a).exp()).reciprocal(), a.call("sigmoid"))


@rule(Rounding.REASSOCIATES)
def silu_spelled_out(a: Val, b: Val) -> Equation:
    """A quotient by 1 + exp(-b) is a product with sigmoid(b)."""
    return rewrite(a / (1.0 + (-b).exp()), a * b.call("sigmoid"))


def _approximations() -> Iterator[Rule]:
    for row in ops().values():
        if row.fast is None:
            continue
        if row.arity == 1:

            @rule(Rounding.APPROXIMATES, name=f"approximate_{row.name}")
            def approximate(a: Val, name: str = row.name) -> Equation:
                return rewrite(a.call(name), a.call(f"fast_{name}"), when=a.has_dtype("f32"))
        else:

            @rule(Rounding.APPROXIMATES, name=f"approximate_{row.name}")
            def approximate(a: Val, b: Val, name: str = row.name) -> Equation:
                return rewrite(a.call(name, b), a.call(f"fast_{name}", b), when=a.has_dtype("f32"))

        yield replace(approximate, doc=f"The hardware's approximation of {row.name}, {row.fast.bound}.")


def rules() -> tuple[Rule, ...]:
    return (
        power_zero, power_one, power_two, power_three, add_exponents, subtract_exponents, log_of_exp, log_of_softmax,
        sqrt_of_square, divide_by_sqrt, reciprocal_of_sqrt, sigmoid_spelled_out, silu_spelled_out, *_approximations(),
    )  # fmt: skip
