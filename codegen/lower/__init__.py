"""Lowering of Tile IR to Kernel IR: one layout-directed engine for every family of schedules."""

from emmy_eq.codegen.lower.kernel import lower as lower
