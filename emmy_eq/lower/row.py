"""What a row of the lowering table is, and how an operation's arguments are bound to one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from emmy_eq.errors import Unsupported

# A function of the builder and the operation's arguments by their names in torch's schema, except ``self``, which is
# ``x``.  It returns a `Value`, or a tuple or list of them (None where torch gives an unused result).
Row = Callable[..., Any]

_RENAMED = {"self": "x", "input": "x", "from": "start"}


@cache
def _parameters(row: Row) -> frozenset[str]:
    return frozenset(inspect.signature(row).parameters)


def bind(op: str, row: Row, arguments: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Keyword arguments for ``row``; one that it does not know is refused by name."""
    known = _parameters(row)
    out: dict[str, Any] = {}
    for name, value in arguments.items():
        key = _RENAMED.get(name, name) if name not in known else name
        if key not in known:
            raise Unsupported(op, f"argument {name}={value!r}", where)
        out[key] = value
    return out
