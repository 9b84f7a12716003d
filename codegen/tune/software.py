"""The version of the code generator, as it stands in the keys of measurements."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import emmy_eq


@cache
def version() -> str:
    """The release and a hash of the sources of code generation: a time is that of the code that was generated then."""
    root = Path(__file__).parents[1]
    sources = sorted(p.relative_to(root) for p in root.rglob("*.py"))
    text = b"\0".join(part for p in sources if p.parts[0] != "tune" for part in (str(p).encode(), (root / p).read_bytes()))
    return f"{emmy_eq.__version__}+{hashlib.sha256(text).hexdigest()[:12]}"
