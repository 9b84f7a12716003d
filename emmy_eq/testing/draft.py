"""A random program under construction: every value is computed as it is drawn, so shapes, dtypes and magnitudes are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from emmy_eq.ops import FLOATS
from emmy_eq.testing.shaped import Draw, Shaped
from emmy_eq.testing.shrink import names, pruned
from emmy_eq.testing.sources import SCOPE, Given, Source
from emmy_eq.testing.steps import Kind, Row
from emmy_eq.torch_ir import dtype_name

Integer = Callable[[int, int], int]

MAX_RANK = 5
LARGEST = 1e4  # in a finite program: a few more steps stay far from the largest float16


@dataclass(frozen=True, slots=True)
class Sort:
    """What a program is made of: the dtypes of its inputs, most common first, extents, and how much of it there is.

    ``elements``: of a value, at most; 1500 are what the simulator does in milliseconds.  ``steps``: values beyond the inputs.
    ``products``: in tenths, how often a step is a contraction.
    """

    dtypes: tuple[str, ...]
    extents: tuple[int, ...]
    elements: int = 1500
    steps: int = 10
    products: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """``exact``: every rounding on the way here gave the number itself, in any order of evaluation that a rule may choose."""

    name: str
    value: torch.Tensor
    wide: torch.Tensor
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)


@dataclass(slots=True)
class Draft:
    """``integer(a, b)`` draws a number from a to b; ``special`` lets infinities, NaN and huge values in."""

    integer: Integer
    special: bool
    sort: Sort
    inputs: list[Given] = field(default_factory=list)
    body: list[tuple[str, str]] = field(default_factory=list)
    pool: list[Entry] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=lambda: dict(SCOPE))
    wide: dict[str, Any] = field(default_factory=lambda: dict(SCOPE))

    def choose(self, options: Any) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def input(self, shape: tuple[int, ...], dtype: str, kind: str) -> Entry:
        given = Given(shape, dtype, kind, self.integer(0, 9))
        name = f"x{len(self.inputs)}"
        self.inputs.append(given)
        value = given.tensor()
        self.scope[name], self.wide[name] = value, _widened(value)
        entry = Entry(name, value, self.wide[name], kind not in ("normal", "special") or dtype not in FLOATS)
        self.pool.append(entry)
        return entry

    def new_input(self, rank: int = -1) -> Entry:
        shape = self.shape(self.integer(0, 4) if rank < 0 else rank)
        dtype = self.choose(self.sort.dtypes)
        return self.input(shape, dtype, self.kind())

    def kind(self) -> str:
        found: str = self.choose(("special", "whole") if self.special else ("normal", "whole"))
        return found

    def shape(self, rank: int) -> tuple[int, ...]:
        out: list[int] = []
        for _ in range(rank):
            out.append(self.extent(beside=prod(out)))
        return tuple(out)

    def extent(self, beside: int) -> int:
        """Of an axis of a value that has so many elements without it."""
        room = self.sort.elements // max(1, beside)
        found: int = self.choose([n for n in self.sort.extents if n <= room] or [1])
        return found

    def possible(self, rows: Sequence[Row]) -> list[Row]:
        """Those with a first operand."""

        def there(row: Row) -> bool:
            return any(_is(row.kind, e) and (e.exact or row.exactness != "needs") and e.value.dim() >= row.rank for e in self.pool)

        return [row for row in rows if there(row)]

    def operand(self, kind: Kind, exact: bool, rank: int, most: int = 9) -> Entry | None:
        fit = [e for e in self.pool if rank <= e.value.dim() <= most and _is(kind, e) and (e.exact or not exact)]
        recent = fit[-2:] if self.integer(0, 3) else fit
        return self.choose(recent[::-1]) if fit else None

    def row(self, row: Row) -> None:
        """One more value, if what the row gives is fit."""
        x = self.operand(row.kind, row.exactness == "needs", row.rank)
        assert x is not None, row
        fills = _Fills(self, row, x)
        text = row.text.format_map(fills)
        self.add(text, row.exactness != "loses" and all(e.exact for e in fills.used), row.results)

    def shaped(self, step: Shaped, least: int, most: int, keeps: bool) -> None:
        x = self.operand("float", False, least, most)
        if x is None or 0 in x.shape:
            return
        operands = Draw(self, x)
        self.add(step(operands, x.name, x.shape), keeps and all(e.exact for e in operands.used), 1)

    def add(self, text: str, exact: bool, results: int) -> None:
        name = f"y{len(self.body)}"
        try:
            found = eval(text, self.scope)
            wide = eval(_in_float64(text), self.wide)
        except (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError):
            return  # torch refuses the operands that were drawn
        names = [name] if results == 1 else [f"{name}[{n}]" for n in range(results)]
        pairs = list(zip([found] if results == 1 else found, [wide] if results == 1 else wide, strict=True))
        if not all(self.fit(value, large) for value, large in pairs):
            return
        self.body.append((name, text))
        self.scope[name], self.wide[name] = found, wide
        for entry, (value, large) in zip(names, pairs, strict=True):
            rounded = not torch.equal(_widened(value).nan_to_num(7.5), _widened(large).nan_to_num(7.5))
            self.pool.append(Entry(entry, value, large, exact and not rounded))

    def fit(self, value: torch.Tensor, wide: torch.Tensor) -> bool:
        if value.numel() > self.sort.elements or value.dim() > MAX_RANK:
            return False
        return self.special or not value.is_floating_point() or all(bool((x.double().abs() < LARGEST).all()) for x in (value, wide))

    def unread(self) -> list[str]:
        """The computed values that no other one reads."""
        read = set().union(*(names(text) for _, text in self.body))
        return [e.name for e in self.pool if e.name.startswith("y") and e.name.partition("[")[0] not in read]

    def source(self, results: list[str]) -> Source:
        """The program that computes ``results``, without what they do not need."""
        return pruned(tuple(self.inputs), tuple(self.body), tuple(results))


class _Fills(dict[str, Any]):
    """The placeholders of `emmy_eq.testing.steps`, drawn where a row mentions them; each once."""

    def __init__(self, draft: Draft, row: Row, x: Entry) -> None:
        super().__init__(x=x.name)
        self.draft, self.of, self.used = draft, row, [x]
        self.at = draft.integer(0, max(x.value.dim() - 1, 0)) if row.rank else 0

    def __missing__(self, key: str) -> Any:
        self[key] = found = self.fill(key)
        return found

    def fill(self, key: str) -> Any:
        draft, x = self.draft, self.used[0]
        extent = x.shape[self.at] if x.shape else 1
        match key:
            case "y" | "z":
                self.used.append(self.partner())
                return self.used[-1].name
            case "m":
                masks = [e for e in draft.pool if e.value.dtype == torch.bool and e.exact and _broadcasts(e.shape, x.shape)]
                return (draft.choose(masks) if masks and draft.integer(0, 1) else draft.input(self.narrowed(), "bool", "whole")).name
            case "d":
                return self.at
            case "D":
                dims = [n for n in range(x.value.dim()) if n == self.at or draft.integer(0, 1)]
                return f"({', '.join(map(str, dims))},)"
            case "p":
                order = list(range(x.value.dim()))
                return f"({''.join(f'{order.pop(draft.integer(0, len(order) - 1))}, ' for _ in x.shape)})"
            case "w":
                return str(_regrouped(x.value.numel(), draft.integer))
            case "c":
                return draft.choose((1.5, 0.3, 3.0, -0.7))
            case "i":
                return draft.integer(-3, 3)
            case "b":
                return bool(draft.integer(0, 1))
            case "h":
                return draft.choose(("torch.float32", "torch.float16", "torch.bfloat16"))
            case "n":
                return extent
            case "k":
                return draft.integer(0, max(extent - 1, 0))
            case "s":
                return draft.input((draft.integer(1, 4),), "i64", f"below {max(extent, 1)}").name
        raise KeyError(key)

    def partner(self) -> Entry:
        """A value of x's sort that broadcasts with it, or a new input."""
        draft, x = self.draft, self.used[0]
        sort: Kind = "float" if x.value.is_floating_point() else "bool" if x.value.dtype == torch.bool else "int"
        fit = [e for e in draft.pool if _is(sort, e) and _broadcasts(e.shape, x.shape) and (e.exact or self.of.exactness != "needs")]
        if fit and draft.integer(0, 2):
            return draft.choose(fit[::-1])  # type: ignore[no-any-return]
        kind = "whole" if self.of.exactness == "needs" else draft.kind()
        return draft.input(self.narrowed(), dtype_name(x.value.dtype), kind)

    def narrowed(self) -> tuple[int, ...]:
        """x's shape with some dims 1 and some leading dims left out."""
        shape = [1 if self.draft.integer(0, 3) == 0 else n for n in self.used[0].shape]
        return tuple(shape[self.draft.integer(0, len(shape)) if self.draft.integer(0, 2) == 0 else 0 :])


def _is(kind: Kind, e: Entry) -> bool:
    sort = "float" if e.value.is_floating_point() else "bool" if e.value.dtype == torch.bool else "int"
    return kind in (sort, "any")


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def _regrouped(n: int, integer: Integer) -> tuple[int, ...]:
    """A shape of ``n`` elements."""
    if n == 0:
        return (0, 3)
    out: list[int] = []
    while n > 1 and len(out) < 3:
        factors = [q for q in range(2, n + 1) if n % q == 0]
        out.append(factors[integer(0, len(factors) - 1)])
        n //= out[-1]
    return (*out, n) if n > 1 or not out else tuple(out)


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def _in_float64(text: str) -> str:
    for name in ("torch.float32", "torch.float16", "torch.bfloat16"):
        text = text.replace(name, "torch.float64")
    return text
