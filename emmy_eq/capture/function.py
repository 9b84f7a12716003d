"""Captures a function or module on example inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from emmy_eq.capture.tracer import Tracer, recording, same
from emmy_eq.errors import EmmyError, InvalidInput
from emmy_eq.lower.program import substitute
from emmy_eq.text import count
from emmy_eq.torch_ir import Input, Node, Output, Program, Ref


def capture(fn: Callable[..., Any], example_inputs: Sequence[Any]) -> Program:
    """The program that ``fn(*example_inputs)`` runs, for these shapes; arguments that are not tensors are compiled in.

    ``fn`` is a function, or a module in eval mode.  Raises `Unsupported` for what has no lowering.
    """
    if isinstance(fn, torch.nn.Module) and any(m.training and _behaves_otherwise(m) for m in fn.modules()):
        raise InvalidInput(type(fn).__name__, "it holds dropout or batch norm in training mode; call .eval() on it first")
    if isinstance(example_inputs, Tensor):
        raise InvalidInput("example inputs", "they are a tuple of arguments; write (x,) for one tensor")
    if not callable(fn):
        raise InvalidInput(_brief(fn), "a function or a module is compiled")
    tracer = Tracer()
    leaves, spec = pytree.tree_flatten(tuple(example_inputs))
    names = _argument_names(fn, example_inputs)
    stand_ins = [tracer.stand_in_for(x, name) if isinstance(x, Tensor) else x for x, name in zip(leaves, names, strict=True)]
    with recording(tracer):
        result = guarded(lambda: fn(*pytree.tree_unflatten(stand_ins, spec)), getattr(fn, "__name__", type(fn).__name__))

    def flatten(args: Sequence[Any]) -> list[Tensor]:
        if len(args) != len(example_inputs):
            were = "was" if len(example_inputs) == 1 else "were"
            raise InvalidInput("arguments", f"{count(len(args), 'argument')} where {len(example_inputs)} {were} compiled")
        given, given_spec = pytree.tree_flatten(tuple(args))
        if given_spec != spec:
            raise InvalidInput("arguments", "they are not nested as the example inputs were")
        for old, new in zip(leaves, given, strict=True):
            if isinstance(old, Tensor) != isinstance(new, Tensor) or not (isinstance(old, Tensor) or same(old, new)):
                raise InvalidInput("arguments", f"{_brief(new)} was given where {_brief(old)} was compiled in")
        return [x for x in given if isinstance(x, Tensor)]

    return finish(tracer, result, [x for x in stand_ins if isinstance(x, Tensor)], flatten)


def _brief(x: Any) -> str:
    if x is None or isinstance(x, bool | int | float | str):
        return repr(x)
    return "a tensor" if isinstance(x, Tensor) else f"a {type(x).__name__}"


def guarded(call: Callable[[], Any], what: str) -> Any:
    """What ``call`` returns; an error of the user's code, or of torch in it, comes as `InvalidInput`."""
    try:
        return call()
    except EmmyError:
        raise
    except Exception as error:
        raise InvalidInput(what, f"{type(error).__name__}: {error}") from error


def _behaves_otherwise(module: torch.nn.Module) -> bool:
    """Whether ``module`` itself computes something else in training mode."""
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return module.p > 0
    return isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats


def _argument_names(fn: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    """A name for each leaf of ``args``: its parameter's, numbered where that holds several."""
    call = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except ValueError:  # a builtin without a signature
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names: list[str] = []
    for k, arg in enumerate(args):
        name = plain[k] if k < len(plain) else f"x{k}"
        leaves = len(pytree.tree_leaves(arg))
        names += [name] if leaves == 1 else [f"{name}_{j}" for j in range(leaves)]
    return names


def finish(tracer: Tracer, result: Any, arguments: Sequence[Tensor], flatten: Callable[[Sequence[Any]], Sequence[Any]]) -> Program:
    """The recorded program with ``result`` as what it returns, and the arguments it wrote as further outputs."""
    leaves, spec = pytree.tree_flatten(result)
    names = {id(x): _name(tracer, k) for k, x in enumerate(arguments)}
    outputs: list[Output] = []
    with recording(tracer):
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                x = tracer.known(leaf)
                outputs.append(Output(tracer.memory.ref(x), names.get(id(x))))
        returned = {o.alias for o in outputs}
        for x in arguments:
            if tracer.memory.written(x) and names[id(x)] not in returned:
                outputs.append(Output(tracer.memory.ref(x), names[id(x)], returned=False))
    is_tensor = [isinstance(x, Tensor) for x in leaves]

    def pack(found: Sequence[Any]) -> Any:
        rest = iter(found)
        return pytree.tree_unflatten([next(rest) if t else x for t, x in zip(is_tensor, leaves, strict=True)], spec)

    return _renumbered(tracer, outputs, pack, flatten)


def _name(tracer: Tracer, k: int) -> str:
    """Name of argument ``k``."""
    return [v.name for v in tracer.values if isinstance(v, Input) and not v.constant][k]


def _renumbered(
    tracer: Tracer, outputs: Sequence[Output], pack: Callable[[Sequence[Any]], Any], flatten: Callable[[Sequence[Any]], Sequence[Any]]
) -> Program:
    """Inputs first; without the operations and constants that no output needs."""
    used = {o.value.node for o in outputs}
    for n in reversed(range(len(tracer.values))):
        value = tracer.values[n]
        if n in used and isinstance(value, Node):
            substitute(value.arguments, lambda ref: used.add(ref.node))
    inputs = [n for n, v in enumerate(tracer.values) if isinstance(v, Input) and (n in used or not v.constant)]
    nodes = [n for n, v in enumerate(tracer.values) if isinstance(v, Node) and n in used]
    moved = {n: k for k, n in enumerate([*inputs, *nodes])}

    def move(ref: Ref) -> Ref:
        return Ref(moved[ref.node], ref.output)

    kept_inputs = tuple(v for n in inputs if isinstance(v := tracer.values[n], Input))
    kept_nodes = tuple(replace(v, arguments=substitute(v.arguments, move)) for n in nodes if isinstance(v := tracer.values[n], Node))
    examples = {i.name: tracer.examples[i.name] for i in kept_inputs}
    return Program(kept_inputs, kept_nodes, tuple(replace(o, value=move(o.value)) for o in outputs), examples, pack, flatten)
