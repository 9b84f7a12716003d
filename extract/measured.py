"""Measured times in extraction: they count in place of modelled ones, and correct the model for the kernels without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from statistics import median
from types import MappingProxyType

from emmy_eq.extract.cost import Cost

NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Model:
    """``times``: measured seconds by kernel identity, and of whole plans by `together`; ``factors``: what modelled seconds are multiplied
    by, by the roof that is met."""

    times: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)

    def settled(self, cost: Cost, identity: str) -> Cost:
        """``cost`` with the seconds that count for kernel ``identity``."""
        known = self.times.get(identity)
        return replace(cost, seconds=known if known is not None else cost.modelled * self.factor(cost.bound), measured=known)

    def seconds(self, costs: Sequence[Cost], identities: Sequence[str]) -> float:
        """Of a plan of these kernels: as measured, where it was."""
        seconds = sum(c.seconds for c in costs)
        return self.times.get(together(identities), seconds) if self.times else seconds

    def factor(self, bound: str) -> float:
        """A roof that no measured kernel met is as far off as all of them: else the search would flee to what nobody measured."""
        return self.factors.get(bound, self.factors.get("", 1.0))

    def refitted(self, costs: Iterable[Cost]) -> Model:
        """Factors from the kernels that were measured: the median ratio, which a kernel with a poor schedule does not drag along."""
        ratios: dict[str, list[float]] = defaultdict(list)
        for c in costs:
            if c.measured is not None:
                ratios[c.bound].append(c.measured / c.modelled)
                ratios[""].append(c.measured / c.modelled)
        return replace(self, factors={bound: median(found) for bound, found in ratios.items()})

    def error(self, costs: Iterable[Cost]) -> float | None:
        """Median of |model / measured - 1| over the measured ones; None without any."""
        found = [abs(c.modelled * self.factor(c.bound) / c.measured - 1) for c in costs if c.measured is not None]
        return median(found) if found else None


def together(kernels: Sequence[str]) -> str:
    """What stands for a plan of these kernels among measured times: one after the other they take other times than each again and again,
    by up to a tenth."""
    return sha256("+".join(sorted(kernels)).encode()).hexdigest() if len(kernels) > 1 else kernels[0] if kernels else ""


PLAIN = Model()
