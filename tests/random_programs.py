"""Random Tensor IR programs in which views, reductions and renamed reads meet."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from emmy_eq import index as ix
from emmy_eq.lower.builder import Builder, Value, dims
from emmy_eq.tensor_ir import Program, Shape, total

from .term_checks import program

SHAPES: tuple[Shape, ...] = ((6,), (4, 6), (2, 3, 4), (1, 6), (3, 1, 4), (12,), (2, 2, 3), (6, 6), (4, 4), (1,), ())
MAX_ELEMENTS = 300

Step = Callable[[Random, Builder, Value, list[Value]], Value | None]


def build(rng: Random, steps: int = 10) -> Program:
    """A program of at most ``steps`` random steps with up to three results."""
    b = Builder()
    pool = [b.input(f"x{k}", rng.choice(SHAPES), "f32") for k in range(rng.randint(1, 3))]
    for _ in range(rng.randint(3, steps)):
        made = rng.choice(STEPS)(rng, b, rng.choice(pool), pool)
        if made is not None and 0 < total(made.shape) <= MAX_ELEMENTS:
            pool.append(made)
    return program(b, pool[-1], *rng.sample(pool, min(2, len(pool))))


def _factors(rng: Random, n: int) -> Shape:
    out = []
    while n > 1 and rng.random() < 0.7:
        out.append(rng.choice([q for q in range(2, n + 1) if n % q == 0]))
        n //= out[-1]
    out += [n] if n > 1 or not out else []
    if rng.random() < 0.2:
        out.insert(rng.randrange(len(out) + 1), 1)
    return tuple(out)


def _dim(rng: Random, x: Value) -> int | None:
    return rng.randrange(x.rank) if x.rank else None


def _some(rng: Random, x: Value) -> list[int]:
    return rng.sample(range(x.rank), rng.randint(1, x.rank)) if x.rank else []


def reshape(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    return b.reshape(x, _factors(rng, total(x.shape)))


def permute(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    return b.permute(x, rng.sample(range(x.rank), x.rank))


def expand(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    at = rng.randrange(x.rank + 1)
    return b.expand(b.unsqueeze(x, [at]), (*x.shape[:at], rng.choice([2, 3, 4]), *x.shape[at:]))


def along(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    """One dim sliced, flipped, rolled, tiled, or with each element repeated."""
    k = _dim(rng, x)
    if k is None:
        return None
    n, d = x.shape[k], ix.var(f"d{k}")
    low, step = rng.randrange(n), rng.choice([1, 1, 2])
    forms = ((d * step + low, (n - low + step - 1) // step), (d * -1 + (n - 1), n), ((d + 1) % n, n), (d % n, 2 * n), (d // 2, 2 * n))
    return b.along(x, k, *rng.choice(forms))


def select(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    k = _dim(rng, x)
    if k is None:
        return None
    index = [ix.const(rng.randrange(x.shape[k])) if q == k else ix.var(f"d{q - (q > k)}") for q in range(x.rank)]
    return b.remap(x, index, (*x.shape[:k], *x.shape[k + 1 :]))


def diagonal(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    if x.rank < 2 or x.shape[0] != x.shape[1]:
        return None
    return b.remap(x, [ix.var("d0"), *dims(x.rank - 1)], x.shape[1:])


def pad(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    k = _dim(rng, x)
    if k is None:
        return None
    n = x.shape[k]
    inner = b.along(x, k, (ix.var(f"d{k}") - 1).max(0).min(n - 1), n + 2)
    at = b.position(inner.shape, k)
    return b.apply("where", b.apply("and", b.apply("ge", at, 1), b.apply("le", at, n)), inner, 0.0)


def unary(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    return b.apply(rng.choice(["tanh", "neg", "sin"]), x)


def binary(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    """With an operand of as many elements, viewed in this one's shape."""
    other = rng.choice([v for v in pool if total(v.shape) == total(x.shape)])
    return b.apply(rng.choice(["add", "sub", "maximum"]), x, b.reshape(other, x.shape))


def pairwise(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    if not x.rank or total(x.shape) > 30:
        return None
    n = x.shape[-1]
    return b.apply("sub", b.expand(b.unsqueeze(x, [x.rank]), (*x.shape, n)), b.expand(b.unsqueeze(x, [x.rank - 1]), (*x.shape, n)))


def reduction(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    return b.reduce(rng.choice(["sum", "max", "min"]), x, _some(rng, x))


def position_of_best(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value:
    """Of rounded values, so that there are ties."""
    return b.cast(b.reduce(rng.choice(["argmax", "argmin"]), b.apply("floor", x), _some(rng, x)), "f32")


def scan(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    k = _dim(rng, x)
    return None if k is None else b.scan(rng.choice(["sum", "max"]), x, k)


def gather(rng: Random, b: Builder, x: Value, pool: list[Value]) -> Value | None:
    """One dim of ``x`` at data-dependent positions, the others at a fixed one or in full."""
    k = _dim(rng, x)
    source = rng.choice(pool)
    if k is None or total(source.shape) > 30:
        return None
    at = b.apply("mod", b.cast(b.apply("floor", source), "i64"), x.shape[k])
    if rng.random() < 0.5:
        return b.gather(x, [ix.var("g0") if q == k else ix.const(rng.randrange(n)) for q, n in enumerate(x.shape)], [at], at.shape)
    rest = tuple(n for q, n in enumerate(x.shape) if q != k)
    index = [ix.var("g0") if q == k else ix.var(f"d{at.rank + q - (q > k)}") for q in range(x.rank)]
    spread = b.expand(b.unsqueeze(at, range(at.rank, at.rank + len(rest))), (*at.shape, *rest))
    return b.gather(x, index, [spread], spread.shape)


STEPS: tuple[Step, ...] = (
    reshape, reshape, permute, expand, along, along, select, diagonal, pad, unary, binary, binary, pairwise, reduction, reduction,
    position_of_best, scan, gather,
)  # fmt: skip
