"""Certificates: what the layers found of each rule, stored as data beside the rules and keyed by the rule's content.

`rules/certificates.json` has one line a rule.  A certificate is current while its key is that of the rule (both sides, guard,
rounding, arguments, twists' laws) and of these layers; changed comments or names leave it current.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from emmy_eq import rules
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


def load() -> dict[str, Certificate]:
    """The stored certificates by rule."""
    if not PATH.is_file():
        return {}
    return {row["rule"]: Certificate(**row) for row in json.loads(PATH.read_text())}


def store(found: Sequence[Certificate]) -> None:
    """Replaces those of the same rules, and drops those of rules that are gone."""
    known = {name: c for name, c in load().items() if name in rules.library()}
    rows = sorted((known | {c.rule: c for c in found}).values(), key=lambda c: c.rule)
    text = "[\n" + ",\n".join(json.dumps(asdict(c)) for c in rows) + "\n]\n"
    if not PATH.is_file() or PATH.read_text() != text:
        written = PATH.with_suffix(f".{os.getpid()}")
        written.write_text(text)
        written.replace(PATH)  # at once: another process may be reading


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


def score(found: Sequence[Certificate]) -> tuple[int, int]:
    """(killed, counted) mutants; those that are true rules do not count."""
    killed = sum(c.mutants.get("killed", 0) for c in found)
    return killed, killed + sum(c.mutants.get("survived", 0) for c in found)
