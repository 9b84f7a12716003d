"""L3 for index expressions: z3 proves that two of them agree for every position of the axes.

`emmy_eq.index.simplify` rewrites with the extents as premises; each of its results is a goal.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from emmy_eq import index as ix
from emmy_eq.index import Idx
from emmy_eq.verify.draws import Abstains
from emmy_eq.verify.solver import MILLISECONDS, solver

EXTENTS: Mapping[str, int] = {"i": 7, "j": 4, "k": 12, "m": 1}


def refutes(x: Idx, y: Idx, extents: Mapping[str, int]) -> str | None:
    """Where ``x`` and ``y`` differ with each variable in [0, extent); None where z3 proves that they do not."""
    z3 = solver()
    env = {name: z3.Int(name) for name in sorted(ix.variables(x) | ix.variables(y))}
    query = z3.Solver()
    query.set("timeout", MILLISECONDS)
    query.add(*(z3.And(0 <= v, v < extents[name]) for name, v in env.items()), _goal(z3, x, env) != _goal(z3, y, env))
    answer = query.check()
    if answer == z3.unsat:
        return None
    if answer == z3.unknown:
        raise Abstains("z3 found no proof")
    model = query.model()
    at = {name: model.eval(v, model_completion=True).as_long() for name, v in env.items()}
    return f"{x} is {ix.evaluate(x, at)} and {y} is {ix.evaluate(y, at)} at {', '.join(f'{n} = {v}' for n, v in at.items())}"


def simplify_refuted(count: int, seed: int = 0) -> str | None:
    """The first of ``count`` random expressions that `emmy_eq.index.simplify` changes the value of."""
    rng = Random(seed)
    for _ in range(count):
        x = random_index(rng, 4)
        if (why := refutes(x, ix.simplify(x, EXTENTS), EXTENTS)) is not None:
            return why
    return None


def random_index(rng: Random, depth: int) -> Idx:
    """An expression over the axes of `EXTENTS`."""
    if depth == 0 or rng.random() < 0.15:
        return ix.var(rng.choice(list(EXTENTS)))
    x = random_index(rng, depth - 1)
    match rng.randrange(7):
        case 0 | 1:
            return x + random_index(rng, depth - 1)
        case 2:
            return x * rng.choice([-2, 2, 3, 4, 12])
        case 3:
            return x // rng.choice([2, 3, 4, 6])
        case 4:
            return x % rng.choice([2, 3, 4, 6])
        case 5:
            return x + rng.randint(-5, 5)
    y = random_index(rng, depth - 1)
    return x.min(y) if rng.random() < 0.5 else x.max(y)


def _goal(z3: Any, x: Idx, env: Mapping[str, Any]) -> Any:
    """z3's division by a positive constant rounds down, as ours does."""
    if x.op == "var":
        return env[x.name]
    if x.op == "const":
        return z3.IntVal(x.value)
    a, b = (_goal(z3, y, env) for y in x.args)
    if x.op in _ARITHMETIC:
        return _ARITHMETIC[x.op](a, b)
    return z3.If(a < b, a, b) if x.op == "min" else z3.If(a < b, b, a)


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "mul": operator.mul, "floordiv": operator.truediv, "mod": operator.mod,
}  # fmt: skip
