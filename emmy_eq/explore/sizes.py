"""Fuse against cut along one size of a program, with the size at which the faster of the two changes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Any

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.plan import Plan
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.text import table
from emmy_eq.torch_ir import capture_code


@dataclass(frozen=True, slots=True)
class Point:
    """Plans at one value of the size."""

    value: int
    fuse: Plan
    cut: Plan
    auto: Plan


@dataclass(frozen=True, slots=True)
class Sweep:
    name: str
    points: tuple[Point, ...]

    @property
    def crossovers(self) -> tuple[float, ...]:
        """Sizes at which fuse and cut take equally long, interpolated along the logarithms of sizes and times."""
        return tuple(_crossing(a, b) for a, b in pairwise(self.points) if _lead(a) * _lead(b) < 0)


def sweep(code: str, stated: str, options: Options) -> Sweep:
    """``stated``: ``n=16,64,256``.  ``code`` either assigns ``n`` at its top level, which is replaced, or uses it without."""
    name, equals, values = stated.partition("=")
    if not equals or not name.isidentifier() or not all(v.strip().isdigit() and int(v) > 0 for v in values.split(",")):
        raise InvalidInput(f"--sweep {stated}", "it is NAME=SIZE,SIZE,... with a variable of the program and positive sizes")
    sizes = sorted({int(v) for v in values.split(",")})
    return Sweep(name, tuple(_point(with_size(code, name, n), n, options) for n in sizes))


def with_size(code: str, name: str, value: int) -> str:
    """``code`` with the variable ``name`` set to ``value``; raises `InvalidInput` where it is not used."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise InvalidInput("the program", f"{error.msg} in line {error.lineno}") from error
    if not any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)):
        raise InvalidInput(f"--sweep {name}", "the program has no variable of that name")
    kept = [s for s in tree.body if not (isinstance(s, ast.Assign) and [ast.unparse(t) for t in s.targets] == [name])]
    return ast.unparse(ast.Module([*ast.parse(f"{name} = {value}").body, *kept], []))


def _point(code: str, value: int, options: Options) -> Point:
    compiled = Compiled(lambda: capture_code(code), options)
    fuse, cut, auto = (compiled.placed(place).plan for place in ("fuse", "cut", "auto"))
    return Point(value, fuse, cut, auto)


def _lead(p: Point) -> float:
    """Logarithm of how many times longer fuse takes than cut."""
    return log(p.fuse.seconds / p.cut.seconds)


def _crossing(a: Point, b: Point) -> float:
    share = _lead(a) / (_lead(a) - _lead(b))
    return exp(log(a.value) + share * (log(b.value) - log(a.value)))


def text(found: Sweep) -> str:
    """The table, then the crossovers in words."""
    head = [found.name, "fuse us", "kernels", "cut us", "kernels", "faster", "chosen us", "kernels"]
    rows = [
        [
            str(p.value), _us(p.fuse), str(len(p.fuse.kernels)), _us(p.cut), str(len(p.cut.kernels)),
            _faster(p), _us(p.auto), str(len(p.auto.kernels)),
        ]
        for p in found.points
    ]  # fmt: skip
    return f"{table(head, rows)}\n\n{words(found)}"


def words(found: Sweep) -> str:
    if not found.crossovers:
        leads = [_lead(p) for p in found.points]
        faster = "cut" if max(leads) > 0 else "fuse" if min(leads) < 0 else None
        return f"{faster} is never slower in this range" if faster is not None else "fuse and cut are one plan"
    at = ", ".join(f"{found.name} = {n:.0f}" for n in found.crossovers)
    return f"{_faster(found.points[0])} is faster up to {at}" if len(found.crossovers) == 1 else f"fuse and cut change places at {at}"


def record(found: Sweep) -> dict[str, Any]:
    points = [
        {found.name: p.value, "faster": _faster(p)}
        | {f"{place}_us": round(plan.seconds * 1e6, 3) for place, plan in _plans(p)}
        | {f"{place}_kernels": len(plan.kernels) for place, plan in _plans(p)}
        for p in found.points
    ]
    return {"name": found.name, "points": points, "crossovers": [round(n, 1) for n in found.crossovers]}


def _plans(p: Point) -> Sequence[tuple[str, Plan]]:
    return ("fuse", p.fuse), ("cut", p.cut), ("chosen", p.auto)


def _us(plan: Plan) -> str:
    return f"{plan.seconds * 1e6:.2f}"


def _faster(p: Point) -> str:
    return "fuse" if _lead(p) < 0 else "cut" if _lead(p) > 0 else "same"
