"""What tensor cores multiply, by the k atom of a schedule row: 16-bit values as they are, f32 ones as one or two tf32 values.

mma.sync reads the upper 19 bits of a tf32 operand and drops the rest, so x = large + small with large the upper bits of x and small =
x - large, which is exact.  Three products of them give an f32 product but for 2^-22 of it (small * small), where small is rounded,
not cut off, to 11 bits.  The tensor core also cuts off when it adds; hence each step starts from zero and is added in f32.
Measured: `docs/accuracy.md`.  The scheme: Ootomo and Yokota 2022 (arXiv:2203.03341).

An infinite x has no small part (inf - inf), and inf * 0 would be NaN where the factor's small part is 0: in the products that hold a
small part the largest finite value stands for inf.  Small parts are scaled, so that they are subnormal (which has fewer bits in tf32)
only where x is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emmy_eq.codegen.kernel_ir import Lit
from emmy_eq.codegen.lower.builder import Builder, literal

Parts = tuple[str, ...]  # registers: of one element of an operand, or of all a lane's elements

LARGEST = 0x7F7FFFFF
UPPER = 0xFFFFE000  # the bits that tf32 keeps
HALF = 0x1000  # half of the last bit that it keeps
SCALE = 2.0**9  # small < 2^-10 x: twice small * x, scaled, does not overflow where x * x does not


@dataclass(frozen=True, slots=True)
class Form:
    """``types`` of an operand; ``parts`` of an element's register, of which the first ones are multiplied; ``small``: pairs of parts, left
    and right, whose products times 1 / `SCALE` belong to that.  ``promoted``: a step's sums start from zero, and are added in f32."""

    types: tuple[str, ...]
    parts: Callable[[Builder, str], Parts]
    small: tuple[tuple[int, int], ...] = ()

    @property
    def promoted(self) -> bool:
        return bool(self.small)


def _rounded(b: Builder, x: str) -> Parts:
    """To nearest, ties away from zero, where that does not overflow; NaN stays."""
    bits = b.let("bitcast", "i32", x)
    fits = b.let("le", "bool", b.let("abs", "f32", x), Lit("f32", LARGEST & UPPER))
    return (b.let("where", "i32", fits, b.let("add", "i32", bits, Lit("i32", HALF)), bits),)


def _split(b: Builder, x: str) -> Parts:
    """x, x if it is finite, and its small part times `SCALE`."""
    finite = _clamped(b, x)
    small = b.let("mul", "f32", b.let("sub", "f32", finite, _cut(b, finite)), literal("f32", SCALE))
    return x, finite, b.let("add", "i32", b.let("bitcast", "i32", small), Lit("i32", HALF))


def largest(b: Builder, values: Sequence[str]) -> str:
    """The largest magnitude; NaN if one is."""
    most = [b.let("abs", "f32", x) for x in values]
    while len(most) > 1:  # a tree: each step waits for the one before
        odd = most[len(most) // 2 * 2 :]
        most = [b.let("maximum", "f32", *pair) for pair in zip(most[::2], most[1::2], strict=False)] + odd
    return most[0]


def small(b: Builder, x: str) -> str:
    """What tf32 drops of a finite x, rounded; not scaled, for sums of all three products in one place."""
    return _rest(b, x, _cut(b, x))


def parts(b: Builder, x: str) -> tuple[str, str]:
    """The parts of an x that may not be finite, so that none of the three products is NaN by itself: infinity's small part is infinity, the
    large one has its sign, and either times a factor that is not 0 is infinite alike.  NaN's large part is NaN."""
    large = _cut(b, _clamped(b, x))
    return large, _rest(b, x, large)


def _rest(b: Builder, x: str, large: str) -> str:
    rest = b.let("bitcast", "i32", b.let("sub", "f32", x, large))
    return b.let("bitcast", "f32", b.let("add", "i32", rest, Lit("i32", HALF)))


def _clamped(b: Builder, x: str) -> str:
    """The largest finite value for infinity; NaN stays."""
    return b.let("maximum", "f32", b.let("minimum", "f32", x, Lit("f32", LARGEST)), Lit("f32", LARGEST | 1 << 31))


def _cut(b: Builder, x: str) -> str:
    """x as tf32 keeps it."""
    return b.let("bitcast", "f32", b.let("and", "i32", b.let("bitcast", "i32", x), Lit("i32", UPPER)))


FORMS = {
    "k16": Form(("f16", "bf16"), lambda b, x: (x,)),
    "k8": Form(("f32",), _rounded),
    "k8x3": Form(("f32",), _split, ((2, 1), (1, 2))),
}
