"""What each tensor of a traced program holds, when tensors share memory and some of them are written.

A storage has a base, the tensor it was made for.  A write through any view gives the base a new value; later reads of
the other views are reads of that value.  So the recorded program has no side effects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from emmy_eq.errors import Unsupported
from emmy_eq.torch_ir import Ref

Record = Callable[[str, dict[str, Any], Tensor], Ref]


@dataclass(slots=True)
class _Storage:
    base: Tensor
    version: int = 0


@dataclass(slots=True)
class _Known:
    """``ref`` holds the tensor's elements as of ``version`` of its storage."""

    tensor: Tensor  # held, so that its id stays its own
    ref: Ref
    version: int


class Memory:
    """Values of tensors; ``record(op, arguments, like)`` adds an operation whose result has the shape and dtype of ``like``."""

    def __init__(self, record: Record, where: Callable[[], str]) -> None:
        self._record, self._where = record, where
        self._known: dict[int, _Known] = {}
        self._storages: dict[int, _Storage] = {}

    def __contains__(self, x: Tensor) -> bool:
        return id(x) in self._known

    def add(self, x: Tensor, ref: Ref, owner: bool = False) -> None:
        """``x`` is new and holds ``ref``; an ``owner`` is the base of its storage, whatever shared that before."""
        storage = self._storages.setdefault(_key(x), _Storage(x))
        if owner:
            storage = self._storages[_key(x)] = _Storage(x)
        self._known[id(x)] = _Known(x, ref, storage.version)

    def adopt(self, x: Tensor) -> bool:
        """Whether ``x``, which no operation made (``y.data``), shares the memory of a known tensor; from now on it is known too."""
        storage = self._storages.get(_key(x))
        if storage is None:
            return False
        self._known[id(x)] = _Known(x, self.ref_of_base(storage), -1)  # older than any version, so that it is read anew
        return True

    def ref(self, x: Tensor) -> Ref:
        """What ``x`` holds now."""
        known, storage = self._known[id(x)], self._storages[_key(x)]
        if known.version != storage.version:
            base = self.ref_of_base(storage)
            known.ref = base if _same_place(x, storage.base) else self.window(x)
            known.version = storage.version
        return known.ref

    def window(self, x: Tensor) -> Ref:
        """What ``x`` holds of its storage: its strides and offset count from the storage's begin, whatever view it was made from."""
        storage = self._storages[_key(x)]
        return self._record("aten.as_strided.default", self._window(storage, x), x)

    def ref_of_base(self, storage: _Storage) -> Ref:
        return self._known[id(storage.base)].ref

    def written(self, x: Tensor) -> bool:
        """Whether ``x``'s memory was written since it was made."""
        return self._storages[_key(x)].version > 0

    def write(self, x: Tensor, value: Ref) -> None:
        """``x`` becomes ``value`` in place."""
        if _overlaps(x):
            raise Unsupported(
                "in-place operation", f"a write through an overlapping view (strides {x.stride()})", self._where(), tuple(x.shape)
            )
        storage = self._storages[_key(x)]
        base = self._known[id(storage.base)]
        if _same_place(x, storage.base):
            base.ref = value
        else:
            base.ref = self._record("aten.as_strided_scatter.default", self._window(storage, x, value), storage.base)
        storage.version += 1
        base.version = storage.version
        self._known[id(x)].ref, self._known[id(x)].version = value, storage.version

    def _window(self, storage: _Storage, x: Tensor, value: Ref | None = None) -> dict[str, Any]:
        base = storage.base
        if not base.is_contiguous() or base.storage_offset() or base.dtype != x.dtype:
            why = f"a view of a base that has strides {base.stride()}, offset {base.storage_offset()}, dtype {base.dtype}"
            raise Unsupported("view by strides", why, self._where(), tuple(base.shape))
        window = {"size": tuple(x.shape), "stride": x.stride(), "storage_offset": x.storage_offset()}
        return {"self": self.ref_of_base(storage), **({} if value is None else {"src": value}), **window}


def _key(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _overlaps(x: Tensor) -> bool:
    """Whether two elements may share a place; exact for the strides that views of dense tensors have, safe for others."""
    span = 1  # of the dims seen so far, all of smaller stride
    for stride, extent in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride < span:
            return True
        span += stride * (extent - 1)
    return False


def _same_place(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one storage are the same elements in the same order."""
    return a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset() and a.dtype == b.dtype
