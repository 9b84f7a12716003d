"""Index expressions: quasi-affine integer arithmetic over named variables.

``//`` and ``%`` floor; every divisor is a positive constant.  `var` names are output dims (``d0``) in Tensor IR,
axes (``a3``) in terms, loop variables in Loop IR and below.  Construction simplifies: constants fold, sums flatten and
sort, ``(x*k + y) // k`` and ``% k`` split where ``y``'s range proves it.  Ranges come from ``extents``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Idx:
    """One node: op is ``var`` (name), ``const`` (value), ``add``, ``mul``, ``floordiv``, ``mod``, ``min``, ``max``."""

    op: str
    args: tuple[Idx, ...] = ()
    name: str = ""
    value: int = 0

    def __add__(self, other: Idx | int) -> Idx:
        return _binary("add", self, lift(other))

    __radd__ = __add__

    def __sub__(self, other: Idx | int) -> Idx:
        return self + lift(other) * -1

    def __mul__(self, other: Idx | int) -> Idx:
        return _binary("mul", self, lift(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Idx | int) -> Idx:
        return _binary("floordiv", self, lift(other))

    def __mod__(self, other: Idx | int) -> Idx:
        return _binary("mod", self, lift(other))

    def min(self, other: Idx | int) -> Idx:
        return _binary("min", self, lift(other))

    def max(self, other: Idx | int) -> Idx:
        return _binary("max", self, lift(other))

    def __str__(self) -> str:
        return show(self)


def var(name: str) -> Idx:
    return Idx("var", name=name)


def const(value: int) -> Idx:
    return Idx("const", value=value)


def lift(x: Idx | int) -> Idx:
    return x if isinstance(x, Idx) else const(x)


_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _binary(op: str, a: Idx, b: Idx) -> Idx:
    """The node, with constants folded and units dropped (no ranges known here; `simplify` uses them)."""
    if a.op == "const" and b.op == "const" and not (op in ("floordiv", "mod") and b.value <= 0):
        return const(_APPLY[op](a.value, b.value))
    if op in ("floordiv", "mod") and not (b.op == "const" and b.value > 0):
        raise ValueError(f"index divisor must be a positive constant, not {b}")
    if op in ("add", "mul", "min", "max") and a.op == "const":
        a, b = b, a
    if b.op == "const":
        if (op == "add" and b.value == 0) or (op in ("mul", "floordiv") and b.value == 1):
            return a
        if (op == "mul" and b.value == 0) or (op == "mod" and b.value == 1):
            return const(0)
    return Idx(op, (a, b))


def variables(x: Idx) -> frozenset[str]:
    """Names of the variables in ``x``."""
    if x.op == "var":
        return frozenset({x.name})
    return frozenset().union(*(variables(a) for a in x.args)) if x.args else frozenset()


def substitute(x: Idx, to: Mapping[str, Idx]) -> Idx:
    """``x`` with variables replaced."""
    if x.op == "var":
        return to.get(x.name, x)
    if x.op == "const":
        return x
    return _binary(x.op, substitute(x.args[0], to), substitute(x.args[1], to))


def evaluate(x: Idx, env: Mapping[str, Any]) -> Any:
    """Value of ``x``; ``env`` maps names to ints or NumPy integer arrays (which broadcast)."""
    import numpy as np

    if x.op == "var":
        return env[x.name]
    if x.op == "const":
        return x.value
    a, b = (evaluate(y, env) for y in x.args)
    if x.op == "min":
        return np.minimum(a, b)
    if x.op == "max":
        return np.maximum(a, b)
    return _APPLY[x.op](a, b)


def bounds(x: Idx, extents: Mapping[str, int]) -> tuple[int, int]:
    """Smallest and largest value of ``x`` (a safe enclosure) with each variable in [0, extent)."""
    if x.op == "const":
        return x.value, x.value
    if x.op == "var":
        return 0, extents[x.name] - 1
    (al, ah), (bl, bh) = (bounds(y, extents) for y in x.args)
    if x.op == "mod":
        return (al, ah) if 0 <= al and ah < bl else (0, bl - 1)
    corners = [_APPLY[x.op](p, q) for p in (al, ah) for q in (bl, bh)]
    return min(corners), max(corners)


def terms(x: Idx) -> list[tuple[Idx, int]]:
    """``x`` as a sum: (non-constant factor, coefficient) pairs; the constant part has factor ``const(1)``."""
    if x.op == "add":
        return terms(x.args[0]) + terms(x.args[1])
    if x.op == "const":
        return [(const(1), x.value)]
    if x.op == "mul" and x.args[1].op == "const":
        return [(f, c * x.args[1].value) for f, c in terms(x.args[0])]
    return [(x, 1)]


def from_terms(parts: list[tuple[Idx, int]]) -> Idx:
    """Inverse of `terms`, in canonical order: equal factors collected, larger coefficients first, constant last."""
    total: dict[Idx, int] = {}
    for factor, coefficient in parts:
        total[factor] = total.get(factor, 0) + coefficient
    one = const(1)
    order = sorted((f for f in total if f != one and total[f]), key=lambda f: (-total[f], show(f)))
    out = const(0)
    for factor in order:
        out = out + factor * total[factor]
    return out + total.get(one, 0)


def simplify(x: Idx, extents: Mapping[str, int]) -> Idx:
    """Canonical form of ``x`` given that each variable lies in [0, extent)."""
    if x.op == "const":
        return x
    if x.op == "var":
        return const(0) if extents.get(x.name) == 1 else x
    a, b = (simplify(y, extents) for y in x.args)
    if x.op == "mul" and b.op == "const":
        return from_terms([(f, c * b.value) for f, c in terms(a)])
    if x.op == "add":
        return from_terms(terms(a) + terms(b))
    low, high = bounds(a, extents)
    if x.op in ("min", "max"):
        low2, high2 = bounds(b, extents)
        if x.op == "min" and (high <= low2 or high2 <= low):
            return a if high <= low2 else b
        if x.op == "max" and (low >= high2 or low2 >= high):
            return a if low >= high2 else b
        return _binary(x.op, a, b)
    if x.op in ("floordiv", "mod") and b.op == "const":
        return _split(x.op, a, b.value, extents)
    return _binary(x.op, a, b)


def _split(op: str, a: Idx, k: int, extents: Mapping[str, int]) -> Idx:
    """a // k or a % k, with the multiples of k taken out: (q*k + r) // k = q + r // k holds for floor division."""
    low, high = bounds(a, extents)
    if 0 <= low and high < k:
        return const(0) if op == "floordiv" else a
    multiple = [(f, c // k) for f, c in terms(a) if c % k == 0]
    rest = from_terms([(f, c) for f, c in terms(a) if c % k])
    low, high = bounds(rest, extents)
    inside = 0 <= low and high < k
    if op == "mod":
        if inside:
            return rest
        if a.op == "mod" and a.args[1].op == "const" and a.args[1].value % k == 0:
            return _split("mod", a.args[0], k, extents)
        return _binary("mod", rest, const(k))
    if inside:
        return from_terms(multiple)
    if not multiple:
        if a.op == "floordiv" and a.args[1].op == "const":
            return _split("floordiv", a.args[0], k * a.args[1].value, extents)
        return _binary("floordiv", a, const(k))
    return from_terms([*multiple, (_split("floordiv", rest, k, extents), 1)])


_LEVEL = {"add": 1, "mul": 2, "floordiv": 2, "mod": 2}
_SIGN = {"add": " + ", "mul": "*", "floordiv": "//", "mod": "%"}


def show(x: Idx, level: int = 0) -> str:
    """Python-like text."""
    if x.op == "var":
        return x.name
    if x.op == "const":
        return str(x.value)
    if x.op in ("min", "max"):
        return f"{x.op}({show(x.args[0])}, {show(x.args[1])})"
    here = _LEVEL[x.op]
    text = _SIGN[x.op].join((show(x.args[0], here), show(x.args[1], here + 1)))
    return f"({text})" if here < level else text
