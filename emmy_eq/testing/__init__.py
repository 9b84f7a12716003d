"""For tests of rules and of whole programs: hypothesis strategies, and what must hold.

    @given(programs())
    def test_programs_stay_right(source):
        check_program(source.function(), source.tensors(), rules=[my_rule])

Needs hypothesis (``pip install emmy_eq[test]``).
"""

from __future__ import annotations

from emmy_eq.testing.equivalence import assert_equivalent as assert_equivalent
from emmy_eq.testing.sources import Source as Source
from emmy_eq.testing.sources import tensor as tensor
from emmy_eq.testing.stages import Mismatch as Mismatch
from emmy_eq.testing.stages import check_program as check_program
from emmy_eq.testing.strategies import axes as axes
from emmy_eq.testing.strategies import programs as programs
from emmy_eq.testing.strategies import schedules as schedules
from emmy_eq.testing.strategies import values as values
from emmy_eq.verify.audit import audit as audit
from emmy_eq.verify.check import check_rule as check_rule
