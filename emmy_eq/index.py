"""Index expressions: quasi-affine integer arithmetic over named variables.

``//`` and ``%`` floor; every divisor is a positive constant.  `var` names are output dims (``d0``) in Tensor IR,
axes (``a3``) in terms, loop variables in Loop IR and below.  Construction simplifies: constants fold, sums flatten and
sort, ``(x*k + y) // k`` and ``% k`` split where ``y``'s range proves it.  Ranges come from ``extents``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd, prod
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


MOST_POINTS = 1 << 22  # of an expression that is tried point by point


def inside(x: Idx, extent: int, extents: Mapping[str, int]) -> bool | None:
    """Whether ``x`` lies in [0, extent) wherever each of its variables is in [0, its extent).

    Ranges are not exact for sums of // and %, so then point by point; None where there are too many points.
    """
    import numpy as np

    if 0 in extents.values():
        return True
    low, high = bounds(x, extents)
    if 0 <= low and high < extent:
        return True
    if prod(extents.values()) > MOST_POINTS:
        return None
    grid = np.meshgrid(*map(np.arange, extents.values()), indexing="ij", sparse=True)
    values = np.asarray(evaluate(x, dict(zip(extents, grid, strict=True))))
    return bool(values.min() >= 0 and values.max() < extent)


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
        return _recombine(terms(a) + terms(b), extents)
    if x.op in ("floordiv", "mod") and b.op == "const":
        return _split(x.op, a, b.value, extents)
    if x.op not in ("min", "max"):
        return _binary(x.op, a, b)
    (low, high), (low2, high2) = bounds(a, extents), bounds(b, extents)
    if high <= low2:
        return a if x.op == "min" else b
    if high2 <= low:
        return b if x.op == "min" else a
    return _binary(x.op, a, b)


def _recombine(parts: list[tuple[Idx, int]], extents: Mapping[str, int]) -> Idx:
    """The sum of ``parts``, where x//k * k + x%k is x again."""
    out = from_terms(parts)
    parts = terms(out)
    weights = dict(parts)
    for factor, weight in parts:
        if factor.op != "mod" or factor.args[1].op != "const":
            continue
        k = factor.args[1].value
        quotient = _split("floordiv", factor.args[0], k, extents)
        if weights.get(quotient) != weight * k:
            continue
        rest = [(f, c) for f, c in parts if f not in (factor, quotient)]
        return _recombine([*rest, *((f, c * weight) for f, c in terms(factor.args[0]))], extents)
    return out


def _split(op: str, a: Idx, k: int, extents: Mapping[str, int]) -> Idx:
    """a // k or a % k, with the multiples of k taken out: (q*k + r) // k = q + r // k holds for floor division."""
    if k == 1:
        return a if op == "floordiv" else const(0)
    low, high = bounds(a, extents)
    if low // k == high // k:
        return const(low // k) if op == "floordiv" else _recombine([*terms(a), (const(1), -(low // k) * k)], extents)
    quotient = [(f, c // k) for f, c in terms(a) if c % k == 0 or f.op == "const"]
    rest = [(f, c % k if f.op == "const" else c) for f, c in terms(a) if c % k]
    remainder = _recombine(rest, extents)
    if any(c for _, c in quotient):
        inner = _split(op, remainder, k, extents)
        return inner if op == "mod" else _recombine([*quotient, *terms(inner)], extents)
    if remainder.op in ("floordiv", "mod"):
        return _nested(op, remainder, k, extents)
    return _common(op, remainder, k, extents)


def _nested(op: str, a: Idx, k: int, extents: Mapping[str, int]) -> Idx:
    """a // k or a % k where ``a`` is itself a quotient or remainder; digits are kept in the form x // m % n."""
    x, m = a.args[0], a.args[1].value
    if op == "floordiv" and a.op == "floordiv":
        return _split("floordiv", x, m * k, extents)
    if op == "floordiv" and a.op == "mod" and m % k == 0:
        return _split("mod", _split("floordiv", x, k, extents), m // k, extents)
    if op == "mod" and a.op == "mod" and m % k == 0:
        return _split("mod", x, k, extents)
    return _binary(op, a, const(k))


def _common(op: str, a: Idx, k: int, extents: Mapping[str, int]) -> Idx:
    """a // k or a % k where a = g*q + r, g divides k and 0 <= r < g: these are q // (k/g) and g*(q % (k/g)) + r."""
    g = k
    for factor, coefficient in terms(a)[:-1]:
        if factor.op == "const":
            break
        g = gcd(g, coefficient)
        rest = from_terms([(f, c % g) for f, c in terms(a) if c % g])
        low, high = bounds(rest, extents)
        if g > 1 and 0 <= low and high < g:
            inner = _split(op, from_terms([(f, c // g) for f, c in terms(a)]), k // g, extents)
            return inner if op == "floordiv" else _recombine([*((f, c * g) for f, c in terms(inner)), *terms(rest)], extents)
    return _binary(op, a, const(k))


@dataclass(frozen=True, slots=True)
class Digit:
    """``weight * (name // low % (high // low))``: the digits of a variable between two of its suffix products."""

    name: str
    low: int
    high: int
    weight: int


def digits(x: Idx, extents: Mapping[str, int]) -> tuple[Digit, ...] | None:
    """The simplified ``x`` as a sum of digits, largest weight first; None for another form (an offset, a window)."""
    parts = [_digit(f, c, extents) for f, c in terms(x)]
    found = tuple(p for p in parts if p is not None)
    return found if len(found) == len(parts) else None


def _digit(x: Idx, weight: int, extents: Mapping[str, int]) -> Digit | None:
    width = None
    if x.op == "mod" and x.args[1].op == "const":
        x, width = x.args[0], x.args[1].value
    low = 1
    if x.op == "floordiv" and x.args[1].op == "const":
        x, low = x.args[0], x.args[1].value
    if x.op != "var" or x.name not in extents:
        return None
    extent = extents[x.name]
    high = extent if width is None else low * width
    return Digit(x.name, low, high, weight) if extent % high == 0 and high % low == 0 and weight > 0 else None


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
    a, b = x.args
    below = x.op == "add" and b.op == "const" and b.value < 0
    text = f"{show(a, here)} - {-b.value}" if below else _SIGN[x.op].join((show(a, here), show(b, here + 1)))
    return f"({text})" if here < level else text


def parse(text: str) -> Idx:
    """Inverse of `show`.  Raises `ValueError` where ``text`` is not an index expression."""
    try:
        return _from_ast(ast.parse(text, mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"not an index expression: {text!r}") from error


_OPERATOR: dict[type[ast.operator], str] = {ast.Add: "add", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"}


def _from_ast(node: ast.expr) -> Idx:
    match node:
        case ast.Name(id=name):
            return var(name)
        case ast.Constant(value=int(value)):
            return const(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return const(-value)
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(value))):
            return _from_ast(left) + const(-value)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATOR:
            return _binary(_OPERATOR[type(operator)], _from_ast(left), _from_ast(right))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right]):
            return _binary(name, _from_ast(left), _from_ast(right))
        case _:
            raise ValueError(f"not an index expression: {ast.unparse(node)!r}")
