"""Tensor IR: a tensor program in five node kinds.  The grammar and its meaning stand in `grammar`."""

from __future__ import annotations

from emmy_eq.tensor_ir.grammar import Const as Const
from emmy_eq.tensor_ir.grammar import Elementwise as Elementwise
from emmy_eq.tensor_ir.grammar import Gather as Gather
from emmy_eq.tensor_ir.grammar import IndexMap as IndexMap
from emmy_eq.tensor_ir.grammar import Input as Input
from emmy_eq.tensor_ir.grammar import Iota as Iota
from emmy_eq.tensor_ir.grammar import Node as Node
from emmy_eq.tensor_ir.grammar import Output as Output
from emmy_eq.tensor_ir.grammar import Program as Program
from emmy_eq.tensor_ir.grammar import Reduce as Reduce
from emmy_eq.tensor_ir.grammar import Scan as Scan
from emmy_eq.tensor_ir.grammar import Shape as Shape
from emmy_eq.tensor_ir.grammar import arguments as arguments
from emmy_eq.tensor_ir.grammar import renumber as renumber
from emmy_eq.tensor_ir.grammar import total as total
from emmy_eq.tensor_ir.interpret import run as run
from emmy_eq.tensor_ir.text import parse as parse
from emmy_eq.tensor_ir.text import show as show
from emmy_eq.tensor_ir.verify import verify as verify
