"""Kernel IR: its grammar, printer and verifier."""

from emmy_eq.codegen.kernel_ir import walk as walk
from emmy_eq.codegen.kernel_ir.grammar import *  # noqa: F403  (the grammar is the surface: every statement by name)
from emmy_eq.codegen.kernel_ir.show import show as show
from emmy_eq.codegen.kernel_ir.show import show_statement as show_statement
from emmy_eq.codegen.kernel_ir.verify import verify as verify
