"""Terms: the values that live in the e-graph.  The grammar and its meaning stand in `grammar`."""

from __future__ import annotations

from emmy_eq.terms.grammar import Axis as Axis
from emmy_eq.terms.grammar import AxisTable as AxisTable
from emmy_eq.terms.grammar import Buf as Buf
from emmy_eq.terms.grammar import InputBuf as InputBuf
from emmy_eq.terms.grammar import Result as Result
from emmy_eq.terms.grammar import Stored as Stored
from emmy_eq.terms.grammar import TempBuf as TempBuf
from emmy_eq.terms.grammar import TermProgram as TermProgram
from emmy_eq.terms.grammar import Val as Val
from emmy_eq.terms.grammar import apply as apply
from emmy_eq.terms.grammar import argreduce as argreduce
from emmy_eq.terms.grammar import cast as cast
from emmy_eq.terms.grammar import children as children
from emmy_eq.terms.grammar import computed as computed
from emmy_eq.terms.grammar import from_bits as from_bits
from emmy_eq.terms.grammar import iota as iota
from emmy_eq.terms.grammar import is_ordered as is_ordered
from emmy_eq.terms.grammar import is_pointwise as is_pointwise
from emmy_eq.terms.grammar import lit as lit
from emmy_eq.terms.grammar import load as load
from emmy_eq.terms.grammar import number as number
from emmy_eq.terms.grammar import pointwise as pointwise
from emmy_eq.terms.grammar import read_bits as read_bits
from emmy_eq.terms.grammar import reduce as reduce
from emmy_eq.terms.grammar import running as running
from emmy_eq.terms.grammar import scan as scan
from emmy_eq.terms.grammar import to_bits as to_bits
from emmy_eq.terms.grammar import topological as topological
from emmy_eq.terms.grammar import twist as twist
from emmy_eq.terms.text import show as show
from emmy_eq.terms.verify import verify as verify
