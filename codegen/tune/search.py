"""The search for a kernel's best row, apart from the device: what to measure next, and what was learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emmy_eq import loop_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.schedule import Schedule, parse
from emmy_eq.codegen.tune.candidates import legal, neighbours
from emmy_eq.errors import Unsupported
from emmy_eq.extract.store import Measurement
from emmy_eq.extract.targets import Target


class Search:
    """``rows``: how many candidates to look at; those in ``stored`` count, and are not measured again."""

    def __init__(self, kernel: loop_ir.Kernel, target: Target, rows: int, stored: Mapping[str, Measurement]) -> None:
        self.kernel, self.target, self.rows = kernel, target, rows
        self.tried: dict[str, Measurement | None] = {}  # by row; None: not back yet
        self.measured = 0  # in this run
        self.problem = ""  # why the kernel was given up
        self._stored = stored
        self._candidates = self._propose()

    def next(self) -> Schedule | None:
        """The next row to measure, or None."""
        while len(self.tried) < self.rows and not self.problem:
            try:
                row = next(self._candidates, None)
            except Unsupported as error:  # no row lowers
                self.problem = str(error)
                return None
            if row is None:
                return None
            text = str(row)
            self.tried[text] = self._stored.get(text)
            if self.tried[text] is None:
                return row
        return None

    def learn(self, m: Measurement) -> None:
        self.tried[m.key.schedule] = m
        self.measured += 1

    @property
    def passed(self) -> list[Measurement]:
        return [m for m in self.tried.values() if m is not None and m.passed]

    @property
    def best(self) -> Measurement | None:
        return min(self.passed, key=lambda m: (m.microseconds, m.key.schedule), default=None)

    @property
    def default(self) -> Measurement | None:
        """Of the row that a compile takes without a store."""
        return next(iter(self.tried.values()), None)

    def _propose(self) -> Iterator[Schedule]:
        """Rows of the families in the model's order; then, climbing, the neighbours of the best so far."""
        for row in schedules(self.kernel, self.target):
            if str(row) not in self.tried and legal(self.kernel, row, self.target):
                yield row
        top = self.best
        while top is not None:
            for row in neighbours(self.kernel, parse(top.key.schedule), self.target):
                if str(row) not in self.tried:
                    yield row
                if self.best is not top:
                    break
            if self.best is top:
                return
            top = self.best
