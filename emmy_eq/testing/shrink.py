"""A failing program made smaller than hypothesis leaves it: fewer results, and values of it turned into inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from emmy_eq.testing.sources import Given, Source
from emmy_eq.torch_ir import dtype_name


def shrink(source: Source, fails: Callable[[Source], bool]) -> Source:
    """The smallest source found that still ``fails``, greedily."""
    tried = {source}
    progress = True
    while progress:
        progress = False
        for smaller in candidates(source):
            if smaller in tried:
                continue
            tried.add(smaller)
            if fails(smaller):
                source, progress = smaller, True
                break
    return source


def candidates(source: Source) -> Iterator[Source]:
    """Smaller programs, the smallest first."""
    values = source.evaluate({f"x{n}": x for n, x in enumerate(source.tensors())})
    for name, _ in source.body:
        result = f"{name}[0]" if isinstance(values[name], tuple) else name
        if source.results != (result,):
            yield pruned(source.inputs, source.body, (result,))
    for result in source.results if len(source.results) > 1 else ():
        yield pruned(source.inputs, source.body, (result,))
    for name, _ in source.body[:-1]:
        yield from _as_input(source, name, values[name])
    for n in range(len(source.results) if len(source.results) > 2 else 0):
        yield pruned(source.inputs, source.body, source.results[:n] + source.results[n + 1 :])


def _as_input(source: Source, name: str, value: Any) -> Iterator[Source]:
    """``name`` given from outside, where it is one tensor."""
    if isinstance(value, tuple):
        return
    new = f"x{len(source.inputs)}"
    body = tuple((other, substitute(text, {name: new})) for other, text in source.body if other != name)
    results = tuple(substitute(r, {name: new}) for r in source.results)
    for kind in ("whole", "normal"):
        inputs = (*source.inputs, Given(tuple(value.shape), dtype_name(value.dtype), kind, 0))
        smaller = pruned(inputs, body, results)
        if smaller.body:
            yield smaller


def pruned(inputs: tuple[Given, ...], body: tuple[tuple[str, str], ...], results: tuple[str, ...]) -> Source:
    """Without what ``results`` do not need; inputs and values numbered anew."""
    needed = set().union(*map(names, results))
    kept = []
    for name, text in reversed(body):
        if name in needed:
            kept.append((name, text))
            needed |= names(text)
    kept.reverse()
    given = [n for n in range(len(inputs)) if f"x{n}" in needed]
    to = {f"x{n}": f"x{k}" for k, n in enumerate(given)} | {name: f"y{k}" for k, (name, _) in enumerate(kept)}
    lines = tuple((to[name], substitute(text, to)) for name, text in kept)
    return Source(tuple(inputs[n] for n in given), lines, tuple(substitute(r, to) for r in results))


def names(text: str) -> set[str]:
    """The inputs and values that an expression reads."""
    return set(_NAME.findall(text))


def substitute(text: str, to: dict[str, str]) -> str:
    return _NAME.sub(lambda found: to.get(found[0], found[0]), text)


_NAME = re.compile(r"\b[xy]\d+\b")
