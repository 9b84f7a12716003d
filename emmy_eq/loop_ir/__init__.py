"""Loop IR: the kernels of a chosen plan as loop nests over scalars.  The grammar and its meaning stand in `grammar`."""

from __future__ import annotations

from emmy_eq.loop_ir.alike import alike as alike
from emmy_eq.loop_ir.canonical import identity as identity
from emmy_eq.loop_ir.canonical import match as match
from emmy_eq.loop_ir.canonical import ops as ops
from emmy_eq.loop_ir.grammar import Axis as Axis
from emmy_eq.loop_ir.grammar import Buffer as Buffer
from emmy_eq.loop_ir.grammar import Carry as Carry
from emmy_eq.loop_ir.grammar import Fold as Fold
from emmy_eq.loop_ir.grammar import Kernel as Kernel
from emmy_eq.loop_ir.grammar import Let as Let
from emmy_eq.loop_ir.grammar import Load as Load
from emmy_eq.loop_ir.grammar import Loop as Loop
from emmy_eq.loop_ir.grammar import Program as Program
from emmy_eq.loop_ir.grammar import Stmt as Stmt
from emmy_eq.loop_ir.grammar import Store as Store
from emmy_eq.loop_ir.grammar import changed as changed
from emmy_eq.loop_ir.grammar import walk as walk
from emmy_eq.loop_ir.interpret import run as run
from emmy_eq.loop_ir.text import parse as parse
from emmy_eq.loop_ir.text import show as show
from emmy_eq.loop_ir.verify import verify as verify
