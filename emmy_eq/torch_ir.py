"""Torch IR: the captured ATen graph, composite operations whole, with the example values.

    Input    a tensor argument, or (constant) a parameter, buffer or other tensor that the program closes over
    Node     one ATen operation; arguments by their schema names, those at their default left out
    Output   one result; ``alias`` names the input whose memory it is (in-place programs); an output that is not ``returned``
             only writes an input

Values are numbered: inputs first, then nodes; a `Ref` is (number, which result of it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emmy_eq.errors import InvalidInput

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """Result ``output`` of value ``node``."""

    node: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    shape: Shape
    dtype: str
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """``op`` is an overload's name (``aten.softmax.int``); arguments are `Ref`, numbers, None, text (a dtype is ``f16``), or
    tuples of these; ``results`` are (shape, dtype), None where torch gives no tensor."""

    name: str
    op: str
    arguments: tuple[tuple[str, Any], ...]
    results: tuple[tuple[Shape, str], ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    value: Ref
    alias: str | None = None
    returned: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """``values`` gives each input's example (a constant's value); large ones are made when first asked for.

    ``pack`` builds what the source function returns from its returned tensors; ``flatten`` lists the tensors of a call's arguments.
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    values: Mapping[str, Callable[[], torch.Tensor]] = field(repr=False, compare=False)
    pack: Callable[[Sequence[Any]], Any] = field(repr=False, compare=False)
    flatten: Callable[[Sequence[Any]], Sequence[Any]] = field(repr=False, compare=False)

    def examples(self) -> dict[str, torch.Tensor]:
        """The example value of every input and constant, by name."""
        return {name: value() for name, value in self.values.items()}

    def bind(self, args: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Arguments of a call as inputs by name, constants included; raises `InvalidInput` for another shape or dtype."""
        given = list(self.flatten(args))
        names = [i for i in self.inputs if not i.constant]
        if len(given) != len(names):
            raise InvalidInput("arguments", f"{len(given)} tensors were given for the inputs {', '.join(i.name for i in names)}")
        for i, x in zip(names, given, strict=True):
            if x.is_sparse or x.device.type not in ("cpu", "cuda"):
                raise InvalidInput(f"input {i.name}", f"it is a {x.layout} tensor on {x.device}, and holds no plain memory")
            got = (dtype_name(x.dtype), tuple(x.shape))
            if got != (i.dtype, i.shape):
                raise InvalidInput(f"input {i.name}", f"it is {got[0]}{list(got[1])}, but {i.dtype}{list(i.shape)} was compiled for")
        out = {i.name: x for i, x in zip(names, given, strict=True)}
        return out | {i.name: self.values[i.name]() for i in self.inputs if i.constant}


def _dtypes() -> dict[torch.dtype, str]:
    import torch

    return {
        torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
        torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    }  # fmt: skip


def dtype_name(dtype: torch.dtype) -> str:
    """``f32`` for torch.float32; raises `InvalidInput` for one that has no name here (complex, quantized)."""
    found = _dtypes().get(dtype)
    if found is None:
        raise InvalidInput(f"dtype {dtype}", f"only {', '.join(_dtypes().values())} are supported")
    return found


def torch_dtype(name: str) -> torch.dtype:
    """Inverse of `dtype_name`."""
    return next(d for d, n in _dtypes().items() if n == name)


def show(program: Program) -> str:
    """One line a value."""
    names = [i.name for i in program.inputs] + [n.name for n in program.nodes]
    lines = [f"{i.name}: {_typed(i.shape, i.dtype)} = {'constant' if i.constant else 'input'}" for i in program.inputs]
    for node in program.nodes:
        results = ", ".join(_typed(*r) for r in node.results)
        call = f"{node.op}({', '.join(f'{k}={_text(v, names, program)}' for k, v in node.arguments)})"
        lines.append(f"{node.name}: {results} = {call}" + (f"  # {node.source}" if node.source else ""))
    outputs = ", ".join(_text(o.value, names, program) + (f" -> {o.alias}" if o.alias else "") for o in program.outputs)
    return "\n".join([*lines, f"return {outputs}".rstrip()])


def _typed(shape: Shape, dtype: str) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _text(x: Any, names: Sequence[str], program: Program) -> str:
    if isinstance(x, tuple):
        return f"[{', '.join(_text(y, names, program) for y in x)}]"
    if not isinstance(x, Ref):
        return repr(x) if not isinstance(x, str) else x
    node = x.node - len(program.inputs)
    several = node >= 0 and len(program.nodes[node].results) > 1
    return f"{names[x.node]}.{x.output}" if several else names[x.node]


def operator(op: str) -> Any:
    """Torch's callable for an overload's name (``aten.softmax.int``)."""
    import torch

    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def run(program: Program, inputs: Mapping[str, torch.Tensor] | None = None) -> list[torch.Tensor]:
    """The outputs, by torch eager, in order; ``inputs`` default to the examples."""
    import torch

    given = program.examples() | dict(inputs or {})
    values: list[tuple[Any, ...]] = [(given[i.name],) for i in program.inputs]

    def resolve(x: Any) -> Any:
        if isinstance(x, tuple):
            return [resolve(y) for y in x]
        return values[x.node][x.output] if isinstance(x, Ref) else x

    with torch.no_grad():
        for node in program.nodes:
            call = operator(node.op)
            # Keywords bind by schema name; a dtype is spelled as torch's own object.
            found = call(**{k: torch_dtype(v) if k == "dtype" and isinstance(v, str) else resolve(v) for k, v in node.arguments})
            values.append(tuple(found) if isinstance(found, tuple | list) else (found,))
    return [values[o.value.node][o.value.output] for o in program.outputs]


def capture(fn: Callable[..., Any], example_inputs: Sequence[Any]) -> Program:
    """See `emmy_eq.capture.capture`."""
    from emmy_eq import capture as tracing

    return tracing.capture(fn, example_inputs)


def capture_code(code: str) -> Program:
    """See `emmy_eq.capture.capture_code`."""
    from emmy_eq import capture as tracing

    return tracing.capture_code(code)
