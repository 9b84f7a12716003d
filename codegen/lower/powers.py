"""Weights exp(s - m) that are rounded to 16 bits: one fma and the hardware's power of two each.

With s = scale * x and c = scale * log2(e), a weight is 2^(x c - m c), where m is the largest x.  m c is rounded before, which is a factor
of all weights under m: below `NEAR` less than 2^(2^-13), an eighth of what a rounding to 16 bits may add.  Beyond, as under masks of the
largest negative number, it could be any factor, and m c infinite: there a thread takes the largest of its own x from each before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower.builder import Builder, literal
from emmy_eq.codegen.lower.layout import Fragment, coordinates, scalar

ZERO = literal("f32", 0)
NEAR = 2.0**12  # half a unit in the last place of what is below is at most 2^-13


def base(scale: float) -> Fragment:
    """exp(scale * x) is 2 to the power of x times this."""
    return scalar(literal("f32", scale * math.log2(math.e)), "f32")


def weights(b: Builder, elements: Sequence[Fragment], key: Fragment, own: Fragment, scale: float) -> list[Fragment]:
    """exp(scale * (x - key)) of each x; ``own``: the largest of them, ``key``: of those of other threads too."""
    far = b.apply("ge", "bool", b.apply("abs", "f32", own), scalar(literal("f32", NEAR * math.log(2) / scale), "f32"))
    origin, moved = _mutable(b, b.fill(ZERO, "f32", own.shape())), [_mutable(b, x) for x in elements]
    body: list[k.Stmt] = []
    for point in coordinates(own.shape()):
        to, largest = str(origin.at(point)), key.at(point)
        for x, otherwise in ((largest, ZERO), (own.at(point), to)):  # a thread without a finite x takes the key, or where that is none, 0
            infinite = b.fresh("v")
            body += [k.Let(infinite, "bool", "isinf", (x,)), k.Set(to, "f32", "where", (infinite, otherwise, x))]
        body += [k.Set(str(x), "f32", "sub", (x, to)) for part in moved for x in part.slice(point).atoms]
    some = reduce(lambda x, y: b.let("or", "bool", x, y), far.atoms)
    b.emit(k.If((k.AnyLane(str(some)),), tuple(body)))
    less = b.apply("mul", "f32", b.apply("sub", "f32", key, origin), base(-scale))
    return [b.apply("exp2_approx", "f32", b.apply("fma", "f32", x, base(scale), less)) for x in moved]


def _mutable(b: Builder, frag: Fragment) -> Fragment:
    """A copy."""
    names = [b.fresh("x") for _ in frag.atoms]
    for name, atom in zip(names, frag.atoms, strict=True):
        b.emit(k.Declare(name, frag.dtype, atom))
    return replace(frag, atoms=tuple(names))
