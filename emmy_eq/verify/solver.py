"""L3: rules over scalars as goals for z3.

An EXACT rule of floats is a theorem of IEEE arithmetic: it is proved for all values of miniature formats, which nest as the
real ones do (f16 and bf16 in f32 in f64); a theorem of f32 proper takes z3 hours where there is a product.  Any other rule is
a theorem of the reals, where all its divisors are not 0 and its roots not negative.  Integers are unbounded.  Functions beyond
arithmetic are uninterpreted: with one of them, a failure to prove refutes nothing.

z3 is optional: without it the layer abstains.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, Self

from emmy_eq import ops
from emmy_eq.algebra import Scalar
from emmy_eq.rule import Dtype, Rounding, Rule
from emmy_eq.verify.draws import Abstains
from emmy_eq.verify.recorded import calls, record, replay

FORMATS = {"f16": (3, 4), "bf16": (4, 3), "f32": (4, 5), "f64": (5, 8)}  # bits of exponent and significand
MILLISECONDS = 2_000  # for one goal


def solver() -> Any:
    """The z3 module; `Abstains` where it is not installed."""
    try:
        import z3
    except ImportError as error:
        raise Abstains("z3-solver is not installed (pip install z3-solver)") from error
    return z3


@dataclass(slots=True)
class Goal:
    """What the readings of one rule share: where its functions are defined, and whether any is uninterpreted."""

    z3: Any
    exact: bool
    premises: list[Any] = field(default_factory=list)
    is_open: bool = False

    def sort(self, dtype: str) -> Any:
        if dtype == "bool":
            return self.z3.BoolSort()
        if dtype in ops.INTS:
            return self.z3.IntSort()
        return self.z3.FPSort(*FORMATS[dtype]) if self.exact else self.z3.RealSort()

    def uninterpreted(self, name: str, result: Any, args: tuple[Any, ...]) -> Any:
        self.is_open = True
        return self.z3.Function(name, *(a.sort() for a in args), result)(*args)

    def root(self, x: Any) -> Any:
        """The square root of a real: a fresh number with its defining property, one for each radicand."""
        name = f"sqrt({x.sexpr()})"
        r = self.z3.Real(name)
        self.premises += [r >= 0, r * r == x]
        return r


@dataclass(frozen=True, slots=True, eq=False)
class Expression(Scalar):
    """A z3 expression."""

    expr: Any
    dtype: str
    goal: Goal

    def _make(self, expr: Any, dtype: str) -> Self:
        return type(self)(expr, dtype, self.goal)

    def _op(self, name: str, *others: Self) -> Self:
        name, args = ops.exact(name), (self, *others)
        row, last = ops.ops()[name], args[-1].dtype
        dtype = row.gives(last)
        exprs = tuple(a.expr for a in args)
        z3, goal = self.goal.z3, self.goal
        if name == "where":
            return self._make(z3.If(*exprs), dtype)
        table = _bools(z3) if last == "bool" else _ints(z3) if last in ops.INTS else _floats(z3) if goal.exact else _reals(goal)
        if name in table:
            return self._make(table[name](*exprs), dtype)
        return self._make(goal.uninterpreted(f"{name}.{last}", goal.sort(dtype), exprs), dtype)

    def cast(self, dtype: Any) -> Self:
        if dtype == self.dtype or (not self.goal.exact and {dtype, self.dtype} <= ops.FLOATS):
            return self._make(self.expr, dtype)
        if {dtype, self.dtype} <= ops.FLOATS:
            return self._make(self.goal.z3.fpToFP(self.goal.z3.RNE(), self.expr, self.goal.sort(dtype)), dtype)
        return self._make(self.goal.uninterpreted(f"cast.{self.dtype}.{dtype}", self.goal.sort(dtype), (self.expr,)), dtype)

    def like(self, value: float) -> Self:
        sort = self.goal.sort(self.dtype)
        if self.dtype == "bool":
            return self._make(self.goal.z3.BoolVal(bool(value)), self.dtype)
        if self.dtype in ops.INTS:
            return self._make(self.goal.z3.IntVal(int(value)), self.dtype)
        if self.goal.exact:
            return self._make(self.goal.z3.FPVal(value, sort), self.dtype)
        if value - value != 0:
            raise Abstains("the reals have no infinity")
        return self._make(self.goal.z3.RealVal(value), self.dtype)

    def has_dtype(self, dtype: Any) -> bool:
        return bool(self.dtype == dtype)


def _bools(z3: Any) -> dict[str, Callable[..., Any]]:
    return {"and": z3.And, "or": z3.Or, "xor": z3.Xor, "not": z3.Not, "eq": lambda a, b: a == b, "ne": z3.Xor}


def _numbers(z3: Any) -> dict[str, Callable[..., Any]]:
    return {
        **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "eq", "ne", "lt", "le", "gt", "ge")},
        "abs": lambda a: z3.If(a < 0, -a, a),
        "maximum": lambda a, b: z3.If(a < b, b, a),
        "minimum": lambda a, b: z3.If(b < a, b, a),
    }


def _ints(z3: Any) -> dict[str, Callable[..., Any]]:
    """SMT-LIB's division rounds so that the remainder is not negative; `floordiv` rounds down; a divisor 0 gives 0."""

    def floordiv(a: Any, b: Any) -> Any:
        return z3.If(b == 0, 0, z3.If(b > 0, a / b, (-a) / (-b)))

    return _numbers(z3) | {"floordiv": floordiv, "mod": lambda a, b: z3.If(b == 0, 0, a - b * floordiv(a, b))}


def _reals(goal: Goal) -> dict[str, Callable[..., Any]]:
    z3 = goal.z3

    def div(a: Any, b: Any) -> Any:
        goal.premises.append(b != 0)
        return a / b

    return _numbers(z3) | {
        "div": div,
        "reciprocal": lambda a: div(z3.RealVal(1), a),
        "fma": lambda a, b, c: a * b + c,
        "sqrt": goal.root,
        "rsqrt": lambda a: div(z3.RealVal(1), goal.root(a)),
        "isnan": lambda a: z3.BoolVal(False),
        "isinf": lambda a: z3.BoolVal(False),
    }


def _floats(z3: Any) -> dict[str, Callable[..., Any]]:
    even = z3.RNE()

    def best(a: Any, b: Any, first: Any, zero: Any) -> Any:
        nan = z3.fpNaN(a.sort())
        both_zero = z3.And(z3.fpIsZero(a), z3.fpIsZero(b))
        return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), nan, z3.If(both_zero, zero, z3.If(first, a, b)))

    def maximum(a: Any, b: Any) -> Any:
        return best(a, b, z3.fpGEQ(a, b), z3.If(z3.fpIsNegative(a), b, a))

    def minimum(a: Any, b: Any) -> Any:
        return best(a, b, z3.fpLEQ(a, b), z3.If(z3.fpIsNegative(a), a, b))

    def div(a: Any, b: Any) -> Any:
        return z3.fpDiv(even, a, b)

    return {
        "add": lambda a, b: z3.fpAdd(even, a, b),
        "sub": lambda a, b: z3.fpSub(even, a, b),
        "mul": lambda a, b: z3.fpMul(even, a, b),
        "div": div,
        "reciprocal": lambda a: div(z3.FPVal(1.0, a.sort()), a),
        "fma": lambda a, b, c: z3.fpFMA(even, a, b, c),
        "sqrt": lambda a: z3.fpSqrt(even, a),
        "neg": z3.fpNeg,
        "abs": z3.fpAbs,
        "maximum": maximum,
        "minimum": minimum,
        "isnan": z3.fpIsNaN,
        "isinf": z3.fpIsInf,
        "eq": z3.fpEQ,
        "ne": lambda a, b: z3.Not(z3.fpEQ(a, b)),
        "lt": z3.fpLT,
        "le": z3.fpLEQ,
        "gt": z3.fpGT,
        "ge": z3.fpGEQ,
    }


@cache
def refutes(rule: Rule) -> str | None:
    """Why z3 finds ``rule`` wrong, or None where it proves it; `Abstains` where the rule is not its business or it cannot tell."""
    z3 = solver()
    if any(kind == "monoid" for _, kind in rule.args):
        raise Abstains("it is not over scalars")
    guards = [guard for guard in record(rule).when if guard.method == "has_dtype" or guard.method == "is_float"]  # others say less
    asked = (str(guard.args[1]) for guard in guards if guard.method == "has_dtype")
    dtypes = dict.fromkeys(["f32", *(("f16",) if rule.rounding is Rounding.EXACT else ()), *(d for d in asked if d in ops.FLOATS)])
    names = [("f32", "f16") if kind == "dtype" else ("",) for _, kind in rule.args]
    tried = 0
    for dtype, chosen in product(dtypes, product(*names)):
        goal = Goal(z3, rule.rounding is Rounding.EXACT)
        env = _arguments(rule, dtype, chosen, goal)
        if all(replay(guard, env) for guard in guards):
            tried += 1
            if (why := _refuted(rule, env, goal)) is not None:
                return why
    if not tried:
        raise Abstains("its guard held for none of the dtypes that were tried")
    return None


def _arguments(rule: Rule, dtype: str, names: tuple[str, ...], goal: Goal) -> dict[str, Any]:
    env: dict[str, Any] = {}
    for (name, kind), chosen in zip(rule.args, names, strict=True):
        own = {"bool": "bool", "int": "i64"}.get(kind, dtype)
        if kind == "axes":
            continue
        env[name] = Dtype(chosen) if kind == "dtype" else Expression(goal.z3.Const(name, goal.sort(own)), own, goal)
    return env


def _refuted(rule: Rule, env: dict[str, Any], goal: Goal) -> str | None:
    z3, recording = goal.z3, record(rule)
    if any(calls(recording, "_reduce", "_scan", "_running", "_twist", "count", "stored")):
        raise Abstains("it is not over scalars")
    lhs, rhs = replay(recording.lhs, env), replay(recording.rhs, env)
    if lhs.dtype != rhs.dtype:
        return f"{lhs.dtype} became {rhs.dtype}"
    query = z3.Solver()
    query.set("timeout", MILLISECONDS)
    query.add(*goal.premises, lhs.expr != rhs.expr)
    answer = query.check()
    if answer == z3.unsat:
        return None
    if answer == z3.unknown or goal.is_open:
        raise Abstains("z3 found no proof" if answer == z3.unknown else "it rests on what its functions are")
    model = query.model()
    values = ", ".join(f"{d} = {model[d]}" for d in sorted(model.decls(), key=str) if str(d) in env)
    left, right = (model.eval(side.expr, model_completion=True) for side in (lhs, rhs))
    return f"{values}: left {left}, right {right}"
