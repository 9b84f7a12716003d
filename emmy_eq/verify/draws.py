"""Random arguments for a rule: a few axes of small extent, and for every argument what it depends on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from emmy_eq.rule import Dtype, Kind, Monoid, Rounding, Rule
from emmy_eq.verify.space import Abstains as Abstains
from emmy_eq.verify.space import AxisSet, names

Arg = int | Monoid | Dtype  # the mask of a Val's or an Axes' axes, or a name
Values = Literal["any", "never -0.0", "finite", "finite and never 0", "finite and never negative"]

_CHOICES: dict[Kind, tuple[Arg, ...]] = {
    "monoid": tuple(map(Monoid, ("sum", "prod", "max", "min"))),
    "dtype": tuple(map(Dtype, ("f32", "f64", "f16", "bf16", "i32", "i64"))),
}
_DTYPES = ("f32", "f32", "f64", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Draw:
    """``extents`` of the axes, one entry of ``args`` for every argument of the rule; ``key`` seeds the values.

    ``values`` says what the operands' elements may be: a premise that is tried out, not one that a rule can state.
    """

    extents: tuple[int, ...]
    args: tuple[tuple[str, Arg], ...]
    dtype: str  # of the Val arguments
    key: int
    values: Values = "any"

    def __str__(self) -> str:
        axes = ", ".join(f"a{n} < {e}" for n, e in enumerate(self.extents))
        args = (f"{name} = {x}" if isinstance(x, str) else f"{name}({names(x)})" for name, x in self.args)
        return f"{', '.join(args)} of {self.dtype} over {axes}; key {self.key}"


def draws(rule: Rule, seed: int, axes: int = 4, extent: int = 4) -> Iterator[Draw]:
    """Endless draws, the same for the same seed; a rule's guard may not hold for all of them."""
    rng = random.Random(f"{rule.name} {seed}")
    empty = 0.1 if rule.rounding is Rounding.EXACT else 0.0  # an empty sum is 0, but not a * 0: see `emmy_eq.egraph.saturate`
    while True:
        extents = tuple(0 if rng.random() < empty else rng.randint(1, extent) for _ in range(axes))
        chance = {"axes": 0.3, "val": rng.choice([0.4, 0.8])}  # guards often want sets disjoint; sums over much show their order
        args = tuple(
            (name, rng.choice(_CHOICES[kind]) if kind in _CHOICES else _mask(chance.get(kind, 0.5), axes, rng)) for name, kind in rule.args
        )
        yield Draw(extents, args, rng.choice(_DTYPES), rng.getrandbits(32))


def _mask(chance: float, axes: int, rng: random.Random) -> int:
    return sum(1 << n for n in range(axes) if rng.random() < chance)


def dtype_of(kind: Kind, draw: Draw) -> str:
    """The dtype of an argument of that kind."""
    return {"bool": "bool", "int": "i64"}.get(kind, draw.dtype)


def arguments(rule: Rule, draw: Draw, value: Callable[[str, str, int], Any]) -> dict[str, Any]:
    """What the rule's arguments are, by name, in order; ``value`` makes the values of name, dtype and mask of axes."""
    out: dict[str, Any] = {}
    for (name, kind), (_, arg) in zip(rule.args, draw.args, strict=True):
        if kind == "axes":
            out[name] = AxisSet(int(arg), draw.extents)
        else:
            out[name] = arg if isinstance(arg, str) else value(name, dtype_of(kind, draw), arg)
    return out
