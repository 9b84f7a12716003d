"""CUDA C++ text of Kernel IR: one-to-one, header-free, deterministic."""

from emmy_eq.codegen.cuda.source import entry_point as entry_point
from emmy_eq.codegen.cuda.source import source as source
from emmy_eq.codegen.kernel_ir.verify import dynamic_shared as dynamic_shared
