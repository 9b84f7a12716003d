"""Random arguments for a rule: a few axes of small extent, and for every argument what it depends on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from emmy_eq import ops
from emmy_eq.rule import Kind, Rule

Arg = int | str  # the mask of a Val's or an Axes' axes; the name of a monoid or dtype

_CHOICES: dict[Kind, tuple[str, ...]] = {
    "monoid": ("sum", "prod", "max", "min"),
    "dtype": ("f32", "f64", "f16", "bf16"),
}


@dataclass(frozen=True, slots=True)
class Draw:
    """``extents`` of the axes, one entry of ``args`` for every argument of the rule; ``key`` seeds the values."""

    extents: tuple[int, ...]
    args: tuple[Arg, ...]
    dtype: str  # of the Val arguments
    key: int

    def show(self, rule: Rule) -> str:
        """One line: the extents, and what each argument was."""
        axes = ", ".join(f"a{n}: {e}" for n, e in enumerate(self.extents))
        return f"axes {{{axes}}}, key {self.key}, " + ", ".join(
            f"{name} = {value}" if isinstance(value, str) else f"{name}{kind_of(value)}" for (name, _), value in zip(rule.args, self.args, strict=True)
        )


def kind_of(mask: int) -> str:
    return "(" + ", ".join(f"a{n}" for n in range(mask.bit_length()) if mask >> n & 1) + ")"


def draws(rule: Rule, seed: int, axes: int = 4, extent: int = 4) -> Iterator[Draw]:
    """Endless draws, the same for the same seed; a rule's guard may not hold for all of them."""
    rng = random.Random(f"{rule.name} {seed}")
    dtypes = ("f32", "f64", "f16", "bf16") if any(kind == "dtype" for _, kind in rule.args) else ("f32",)
    while True:
        extents = tuple(rng.randint(1, extent) for _ in range(axes))
        args = tuple(rng.choice(_CHOICES[kind]) if kind in _CHOICES else _mask(kind, axes, rng) for _, kind in rule.args)
        yield Draw(extents, args, rng.choice(dtypes), rng.getrandbits(32))


def _mask(kind: Kind, axes: int, rng: random.Random) -> int:
    """An axis is in it with an even chance, for a set of axes once in four: guards often want it disjoint."""
    chance = 0.3 if kind == "axes" else 0.5
    return sum(1 << n for n in range(axes) if rng.random() < chance)


def dtype_of(kind: Kind, draw: Draw) -> str:
    """The dtype of an argument of that kind."""
    return {"bool": "bool", "int": "i64"}.get(kind, draw.dtype)


assert set(_CHOICES["monoid"]) <= set(ops.monoids())
