"""One measurement, and its text: a flat JSON object that begins with the SHA-256 of the rest.

The digest makes a measurement its own name, so that importing twice adds nothing, and tells a damaged record from a whole one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from math import isfinite
from statistics import median
from typing import Any

from emmy_eq.errors import InvalidInput

# What became of a row.  All but the first are marks: the row is not tried again under the same key.
OUTCOMES = ("passed", "wrong", "fault", "hang", "memory", "refused")
_LONGEST = 1000  # characters of a note or a command; a record stays within a page of the database, where `salvage` finds it whole
_START = '{"digest":"'


@dataclass(frozen=True, slots=True)
class Key:
    """What a time is the time of.  ``kernel``: `emmy_eq.loop_ir.identity`; ``schedule``: a row in canonical spelling; the last four are
    versions of software (``emmy_eq`` with a hash of the code generator)."""

    kernel: str
    schedule: str
    target: str
    device: str
    driver: str
    torch: str
    nvrtc: str
    emmy_eq: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """``samples`` are microseconds.  ``error`` and ``limit`` are the accuracy verdict in terms of ``contract``; ``at`` is ISO 8601, UTC.

    Raises `InvalidInput` for times without a passed verdict: a kernel's time counts only where its result agreed with the
    interpreter's.
    """

    key: Key
    outcome: str
    at: str
    command: str
    samples: tuple[float, ...] = ()
    error: float | None = None
    limit: float | None = None
    contract: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        numbers = [*self.samples, *(x for x in (self.error, self.limit) if x is not None)]
        what = f"measurement of {self.key.schedule}"
        if self.outcome not in OUTCOMES:
            raise InvalidInput(what, f"its outcome is {self.outcome!r}, not one of {', '.join(OUTCOMES)}")
        if not all(isfinite(x) and x >= 0 for x in numbers):
            raise InvalidInput(what, "its times and errors are finite and not negative")
        if self.passed != (self.error is not None and self.limit is not None and self.error <= self.limit):
            raise InvalidInput(what, f"{self.outcome}, but its error is {self.error} and the limit {self.limit}")
        if self.passed != bool(self.samples):
            raise InvalidInput(what, "it has times if and only if its result was right")
        object.__setattr__(self, "note", self.note[:_LONGEST])
        object.__setattr__(self, "command", self.command[:_LONGEST])

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"

    @property
    def microseconds(self) -> float:
        """The median of the samples."""
        return median(self.samples)

    @property
    def digest(self) -> str:
        return hashlib.sha256(_body(self).encode()).hexdigest()


def _body(m: Measurement) -> str:
    flat = asdict(m)
    return json.dumps(flat.pop("key") | flat, sort_keys=True, separators=(",", ":"), allow_nan=False)


def to_line(m: Measurement) -> str:
    """Canonical text, ASCII, without a newline."""
    return f'{_START}{m.digest}",{_body(m)[1:]}'


def from_line(text: str) -> Measurement:
    """Inverse of `to_line`; raises `InvalidInput` where the text is no record, or is not what its digest says."""
    try:
        return _from_json(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(f"record {text[:60]!r}", f"it is no measurement: {error}") from error


def _from_json(found: dict[str, Any]) -> Measurement:
    digest = found.pop("digest")
    key = Key(**{f.name: found.pop(f.name) for f in fields(Key)})
    m = Measurement(key, samples=tuple(found.pop("samples")), **found)
    if m.digest != digest:
        raise InvalidInput(f"record {str(digest)[:12]}", "it was changed after it was made: its digest differs")
    return m


def salvage(data: bytes) -> Iterator[Measurement]:
    """Every whole record in ``data``, whatever stands between them: a database without its header, or half of one."""
    text = data.decode("latin-1")
    decoder = json.JSONDecoder()
    at = text.find(_START)
    while at >= 0:
        with suppress(ValueError, TypeError, KeyError, InvalidInput):  # damaged, or the rest of a page that looks like one
            yield _from_json(decoder.raw_decode(text, at)[0])
        at = text.find(_START, at + 1)
