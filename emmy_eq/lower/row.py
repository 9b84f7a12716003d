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

# What torch's schemas call otherwise than the rows that serve several of them; a row's own name comes first.
_RENAMED: Mapping[str, tuple[str, ...]] = {
    "self": ("x",), "input": ("x",), "from": ("start",), "size": ("shape",), "split_size": ("split_sizes",), "value": ("src",),
    "axis0": ("dim0",), "axis1": ("dim1",), "mat": ("mat1",), "batch1": ("mat1",), "vec1": ("mat1",), "batch2": ("mat2",),
    "mat2": ("other",), "vec2": ("other", "mat2"), "vec": ("other", "mat2"), "tensor": ("other",), "p": ("ord",),
}  # fmt: skip


@cache
def _parameters(row: Row) -> frozenset[str]:
    return frozenset(inspect.signature(row).parameters)


def bind(op: str, row: Row, arguments: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Keyword arguments for ``row``; one that it does not know is refused by name."""
    known = _parameters(row)
    out: dict[str, Any] = {}
    for name, value in arguments.items():
        key = next((k for k in (name, *_RENAMED.get(name, ())) if k in known), None)
        if key is None:
            raise Unsupported(op, f"argument {name}={value!r}", where)
        out[key] = value
    return out
