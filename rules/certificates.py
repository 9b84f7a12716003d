"""Certificates: what the layers found of each rule, stored as data beside the rules and keyed by the rule's content.

`rules/certificates.json` has one line a rule.  A certificate is current while its key is that of the rule (both sides, guard,
rounding, arguments, twists' laws) and of these layers; changed comments or names leave it current.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from emmy_eq import ops, rules
from emmy_eq.rule import Rule
from emmy_eq.verify import recorded

LAYERS = 1  # counts changes of the layers that make older certificates worthless
PATH = Path(__file__).resolve().parent / "certificates.json"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of one rule.  ``mutants`` counts fates; ``refuted`` is empty for a rule that holds."""

    rule: str
    key: str
    draws: int
    layers: Mapping[str, str]
    mutants: Mapping[str, int]
    refuted: str = ""


def key(rule: Rule) -> str:
    return f"{LAYERS}.{recorded.key(rule)}"


def splits() -> dict[str, str]:
    """What certifies that a fold may run in blocks, by the fold's name: of a monoid the rule that merges nested reductions; of a twist or
    a best element the laws of its row.  A sum in order has none."""
    merges = {name: f"merge_{name}" for name in ops.monoids()}
    of_rows = {name: f"split_{name}" for name in ops.carriers()}
    return {name: rule for name, rule in merges.items() if rule in rules.library()} | of_rows


def split_key(row: ops.Twist | ops.Best) -> str:
    from emmy_eq.verify.laws import laws_of_row

    return f"{LAYERS}.{blake2b(' '.join(map(recorded.key, laws_of_row(row))).encode(), digest_size=8).hexdigest()}"


@cache
def may_split(fold: str) -> bool:
    """Whether that fold is certified to be the fold over blocks of the folds within the blocks."""
    stored = load().get(splits().get(fold, ""))
    return stored is not None and not stored.refuted


def load() -> Mapping[str, Certificate]:
    """The stored certificates by rule."""
    if not PATH.is_file():
        return {}
    return {row["rule"]: Certificate(**row) for row in json.loads(PATH.read_text())}


def store(found: Sequence[Certificate]) -> None:
    """Replaces those of the same rules or folds, and drops those of what is gone."""
    known = {name: c for name, c in load().items() if name in rules.library() or name in splits().values()}
    rows = sorted((known | {c.rule: c for c in found}).values(), key=lambda c: c.rule)
    text = "[\n" + ",\n".join(json.dumps(asdict(c)) for c in rows) + "\n]\n"
    if not PATH.is_file() or PATH.read_text() != text:
        written = PATH.with_suffix(f".{os.getpid()}")
        written.write_text(text)
        written.replace(PATH)  # at once: another process may be reading
    may_split.cache_clear()


def lacking(chosen: Sequence[Rule]) -> Iterator[str]:
    """A line for each of ``chosen`` that has no current certificate."""
    stored = load()
    for rule in chosen:
        found = stored.get(rule.name)
        if found is None:
            yield f"{rule.name} has no certificate"
        elif found.key != key(rule):
            yield f"{rule.name} has changed since it was certified"
        elif found.refuted:
            yield f"{rule.name} is refuted: {found.refuted}"


def splits_lacking() -> Iterator[str]:
    """A line for each fold that rules split or kernels may, and that has no current certificate of it."""
    stored = load()
    for row in ops.carriers().values():
        found = stored.get(splits()[row.name])
        if found is None or found.key != split_key(row) or found.refuted:
            yield f"the split of {row.name} has no current certificate"


def score(found: Sequence[Certificate]) -> tuple[int, int]:
    """(killed, counted) mutants; those that are true rules do not count."""
    killed = sum(c.mutants.get("killed", 0) for c in found)
    return killed, killed + sum(c.mutants.get("survived", 0) for c in found)
