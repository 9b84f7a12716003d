"""Axis inference: every dim of every tensor of a Tensor IR program as a tuple of atomic, program-wide axes.

Three steps, each a union-find:

    splits   which suffix products cut a dim: a view of 2048 as (32, 64) cuts it at 64, and so does every dim that runs along it
    unions   which atoms are one axis: operands of an elementwise op, the factors of a view, a reduction and its operand
    ids      axes in an order in which argmax can count; past 62 axes, those that never meet share an id

Both unions are refused where they would be wrong (6 = 2x3 against 3x2; one axis twice in one tensor, as in x @ x.T).  The
read that asked for a refused union is then a *renamed* one.  Refusal depends on order, so the links that hurt most when
lost come first: elementwise ops and reductions, then index maps of computed tensors in program order (a product's left
operand keeps its rows), then reads of inputs, which cost nothing to rename.
"""

from __future__ import annotations

from emmy_eq.axes.infer import Axes as Axes
from emmy_eq.axes.infer import infer as infer
