"""The tracer: sees every ATen operation that a running program calls, and records it.

Programs run on tensors that have a shape and no data.  Dispatch is entered below autograd, so composite operations come
whole.  Shapes of results come from the lowering table: torch's meta kernels would import torch._dynamo (2 s).  An
operation without a row is decomposed by torch.  Views are made by torch itself, so that storages tell what aliases what.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from emmy_eq import lower, torch_ir
from emmy_eq.capture.memory import Memory
from emmy_eq.errors import Unsupported
from emmy_eq.torch_ir import Input, Node, Ref, Shape, dtype_name, torch_dtype

CODE = "<code>"  # the file name that `capture_code` compiles its text under
_OURS = tuple(str(Path(torch_ir.__file__).with_name(name)) for name in ("torch_ir.py", "pipeline.py", "stage.py"))
_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent), str(Path(lower.__file__).parent), *_OURS, "<frozen")

# Arguments that say where or how a tensor is stored: no part of what it holds.
_SHORT = {"scaled_dot_product_attention": "sdpa", "native_layer_norm": "layer_norm", "to_copy": "cast"}
_DATA = "a Python value that depends on a tensor's data"
_PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})


class Tracer(TorchDispatchMode):
    """Records operations: ``values`` are inputs and nodes in the order they appear, ``examples`` the inputs' data."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default wraps the dispatch in a decorator that imports torch._dynamo

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values: list[Input | Node] = []
        self.examples: dict[str, Callable[[], Tensor]] = {}
        self.memory = Memory(self._record_like, where)
        self.parameters: dict[int, str] = {}  # id of a module's parameter or buffer -> its name
        self._stand_ins: dict[int, tuple[Tensor, Tensor]] = {}  # id of a tensor with data -> (it, its stand-in)
        self._parts: set[int] = set()  # ids of stand-ins for a part of a larger storage
        self._names: set[str] = set()

    def stand_in_for(self, x: Tensor, name: str, constant: bool = False) -> Tensor:
        """A tensor without data that stands for the input ``x``."""
        if x.layout != torch.strided or x.is_quantized or x.is_complex():
            raise Unsupported("capture", f"{name} is a {x.layout} tensor of {x.dtype}", where())
        stand_in = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        if x.storage_offset() or x.untyped_storage().nbytes() != x.numel() * x.element_size():
            self._parts.add(id(stand_in))
        self.make_input(stand_in, name, x.detach, constant)
        return stand_in

    def make_input(self, x: Tensor, name: str, example: Callable[[], Tensor], constant: bool = False) -> None:
        """The tensor without data ``x`` holds an input from now on."""
        name = self._unique(name)
        self.examples[name] = example
        self.values.append(Input(name, tuple(x.shape), dtype_name(x.dtype), constant))
        self.memory.add(x, Ref(len(self.values) - 1), owner=True)

    def known(self, x: Tensor) -> Tensor:
        """``x``, or its stand-in where it has data: a parameter, a buffer, a literal."""
        if x in self.memory or (x.is_meta and self.memory.adopt(x)):
            return x
        if x.is_meta:
            raise Unsupported("capture", "a literal made on the device of a tensor that has no data while the program is traced", where())
        if id(x) not in self._stand_ins:
            self._stand_ins[id(x)] = (x, self._constant(x))
        return self._stand_ins[id(x)][1]

    def _constant(self, x: Tensor) -> Tensor:
        name = self.parameters.get(id(x))
        if name is None and not isinstance(x, torch.nn.Parameter) and x.dim() == 0 and x.device.type == "cpu":
            return self._result("aten.full.default", {"size": (), "fill_value": x.item(), "dtype": x.dtype})
        return self.stand_in_for(x, name or ("parameter" if isinstance(x, torch.nn.Parameter) else "constant"), constant=True)

    # dispatch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        arguments = dict(zip((a.name for a in schema.arguments), args, strict=False)) | (kwargs or {})
        given = list(_tensors(arguments))
        if not any(x in self.memory for x in given) and constructing():
            return func(*args, **(kwargs or {}))  # a module initializes its parameters, which is no part of the program
        arguments = {name: _map(x, self.known) for name, x in arguments.items() if name not in _PLACEMENT}
        if any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
            return self._in_place(func, arguments)
        if schema.name == "aten::to":
            return self._convert(arguments)
        if str(func) not in lower.table():
            return self._without_row(func, arguments)
        if any(r.alias_info is not None for r in schema.returns):
            return self._view(func, arguments)
        found = self._results(str(func), _without_defaults(func, arguments))
        if str(schema.returns[0].type) == "List[Tensor]":
            return found
        return tuple(found) if len(schema.returns) > 1 else found[0]

    def _convert(self, arguments: dict[str, Any]) -> Tensor:
        """`Tensor.to`: the tensor itself where its dtype is the wanted one already and no copy is asked for."""
        x: Tensor = arguments["self"]
        dtype = arguments["other"].dtype if "other" in arguments else arguments.get("dtype") or x.dtype
        if dtype == x.dtype and not arguments.get("copy"):
            return x
        return self._result("aten._to_copy.default", {"self": x, "dtype": dtype})

    def _view(self, func: Any, arguments: dict[str, Any]) -> Any:
        """An operation whose results may share its argument's memory."""
        if func is torch.ops.aten.as_strided.default and id(arguments["self"]) in self._parts:
            raise Unsupported("as_strided", "the memory around an input that is a part of a larger tensor", where())
        if func is torch.ops.aten.view.default:
            # Results are dense here where eager's may be strided, so a view that eager allows may need a copy.
            found = torch.reshape(arguments["self"], tuple(arguments["size"]))
        else:
            found = func(**arguments)
        listed = list(found) if isinstance(found, list | tuple) else [found]
        if func is torch.ops.aten.as_strided.default:
            self.memory.add(found, self.memory.window(found))
        elif any(x not in self.memory for x in listed):
            ref = self._record(str(func), _without_defaults(func, arguments), tuple((tuple(x.shape), dtype_name(x.dtype)) for x in listed))
            for k, x in enumerate(listed):
                self.memory.add(x, Ref(ref.node, k))
        return found

    def _in_place(self, func: Any, arguments: dict[str, Any]) -> Tensor:
        """The operation's out-of-place form, whose result is then written."""
        packet = func._schema.name.removeprefix("aten::")
        written = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        target = arguments.get("self")
        if written != ["self"] or not isinstance(target, Tensor):
            raise Unsupported(packet, f"writing into argument {', '.join(written)}", where())
        if packet in ("detach_", "requires_grad_"):
            return target
        pure_name = f"__{packet[3:]}" if packet.startswith("__i") else packet.removesuffix("_")
        forms = getattr(torch.ops.aten, pure_name, None)
        # floor_divide_.Tensor is the one whose out-of-place form has another overload name.
        pure = getattr(forms, func._schema.overload_name or "default", getattr(forms, "default", None))
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Unsupported(packet, "random values", where())
        if pure is None:
            raise Unsupported(packet, "it has no out-of-place form", where())
        with self:
            found = pure(**arguments)
        if found.shape != target.shape:
            raise Unsupported(packet, f"it would change the shape to {tuple(found.shape)} in place", where(), tuple(target.shape))
        if torch.Tag.inplace_view in func.tags and found.stride() != target.stride():
            raise Unsupported(packet, f"it would change the strides to {found.stride()} in place", where(), tuple(target.shape))
        if not torch.can_cast(found.dtype, target.dtype):
            raise Unsupported(packet, f"its result of {found.dtype} cannot be stored as {target.dtype}", where())
        self.memory.write(target, self.memory.ref(self._convert({"self": found, "dtype": target.dtype})))
        return target

    def _without_row(self, func: Any, arguments: dict[str, Any]) -> Any:
        name = str(func).removeprefix("aten.")
        if name in ("_local_scalar_dense.default", "tensor_split.tensor_indices_or_sections"):
            raise Unsupported("item", _DATA, where())
        if torch.Tag.nondeterministic_seeded in func.tags and ("size" in arguments or name.startswith("randperm")):
            return self._random(func, arguments)
        # By position, since torch's callers have a ``self`` of their own.
        positional = [arguments.pop(a.name) for a in func._schema.arguments if not a.kwarg_only and a.name in arguments]
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            # Not ``func.decompose``, which prefers Python decompositions: that of dropout copies where eager does not.
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *positional, **arguments)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Unsupported(name, "random values", where())
        from torch._decomp import decomposition_table

        rule = decomposition_table.get(func)
        if "device" in (a.name for a in func._schema.arguments):
            arguments["device"] = torch.device("meta")
        with self:
            found = NotImplemented if rule is None else rule(*positional, **arguments)
        if found is NotImplemented:
            raise Unsupported(name, "there is no lowering for it", where())
        return found

    def _random(self, func: Any, arguments: dict[str, Any]) -> Tensor:
        """A random factory's result: it may yet become an input; as a part of the program it has no lowering."""
        integer = "high" in arguments or "n" in arguments  # randint, randperm
        dtype = arguments.get("dtype") or (torch.int64 if integer else torch.get_default_dtype())
        x = torch.empty(arguments["size"] if "size" in arguments else [arguments["n"]], dtype=dtype, device="meta")
        self.memory.add(x, self._record(str(func), _without_defaults(func, arguments), ((tuple(x.shape), dtype_name(dtype)),)))
        return x

    # recording

    def _result(self, op: str, arguments: dict[str, Any]) -> Tensor:
        return self._results(op, arguments)[0]

    def _results(self, op: str, arguments: dict[str, Any]) -> list[Tensor]:
        """Records an operation that has a row; its results are new tensors."""
        plain = {name: self._plain(x) for name, x in arguments.items()}
        shapes = lower.infer(op, plain, self._type, where())
        ref = self._record(op, plain, shapes)
        found = [torch.empty(shape, dtype=torch_dtype(dtype), device="meta") for shape, dtype in shapes]
        for k, x in enumerate(found):
            self.memory.add(x, Ref(ref.node, k))
        return found

    def _record_like(self, op: str, arguments: dict[str, Any], like: Tensor) -> Ref:
        return self._record(op, arguments, ((tuple(like.shape), dtype_name(like.dtype)),))

    def _record(self, op: str, arguments: dict[str, Any], results: tuple[tuple[Shape, str], ...]) -> Ref:
        plain = tuple((name, self._plain(x)) for name, x in arguments.items())
        name = op.split(".")[1].strip("_")
        self.values.append(Node(self._unique(_SHORT.get(name, name)), op, plain, results, where()))
        return Ref(len(self.values) - 1)

    def _plain(self, x: Any) -> Any:
        """An argument as Torch IR holds it."""
        if isinstance(x, list | tuple):
            return tuple(self._plain(y) for y in x)
        if isinstance(x, Tensor):
            return self.memory.ref(x)
        if isinstance(x, torch.dtype):
            return dtype_name(x)
        if isinstance(x, complex | torch.Generator):
            raise Unsupported("capture", f"an argument of type {type(x).__name__}", where())
        return x

    def _type(self, ref: Ref) -> tuple[Shape, str]:
        value = self.values[ref.node]
        return (value.shape, value.dtype) if isinstance(value, Input) else value.results[ref.output]

    def _unique(self, name: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in name)
        base = f"_{base}" if base[0].isdigit() else base
        fresh = next(n for k in count() if (n := f"{base}_{k}" if k else base) not in self._names)
        self._names.add(fresh)
        return fresh


class _Calls(TorchFunctionMode):
    """Sees what is called above dispatch, where a tensor without data would differ from one with it: literals would lose their data."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch._C._is_any_autocast_enabled():  # it casts by device, and sees none here
            raise Unsupported("autocast", "a region of mixed precision; give its operands their types with .to(dtype)", where())
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            kwargs.pop("device", None)
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__) and args[0].is_meta:
            raise Unsupported("item", _DATA, where())
        if func is Tensor.new_tensor:
            return torch.tensor(args[1], dtype=kwargs.get("dtype") or args[0].dtype)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            x, index, *value = args
            index = tuple(map(_literal_index, index)) if isinstance(index, tuple) else _literal_index(index)
            args = (x, index, *value)
        return func(*args, **kwargs)


def _literal_index(x: Any) -> Any:
    return torch.tensor(x) if isinstance(x, list) and x and not any(y is None or isinstance(y, slice | Tensor) for y in x) else x


def _without_defaults(func: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that differ from their defaults in the schema."""
    defaults = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    return {name: x for name, x in arguments.items() if name not in defaults or isinstance(x, Tensor) or not same(x, defaults[name])}


def same(a: Any, b: Any) -> bool:
    """Equal and of one type: 1, 1.0 and True differ."""
    return type(a) is type(b) and bool(a == b)


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, list | tuple | dict):
        for y in x.values() if isinstance(x, dict) else x:
            yield from _tensors(y)


def _map(x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(x, Tensor):
        return f(x)
    return [_map(y, f) for y in x] if isinstance(x, list | tuple) else x


def frames() -> Iterator[FrameType]:
    """The caller's frame and those above it."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def where() -> str:
    """The innermost source line of the user's own."""
    for frame in frames():
        path = frame.f_code.co_filename
        if path == CODE:
            return f"line {frame.f_lineno} of the code"
        if not path.startswith(_NOT_THE_USERS):
            return f"{Path(path).name}:{frame.f_lineno} in {frame.f_code.co_name}"
    return ""


def constructing() -> bool:
    """Whether a module's ``__init__`` is running."""
    inits = (f for f in frames() if f.f_code.co_name == "__init__")
    return any(isinstance(f.f_locals.get("self"), torch.nn.Module) for f in inits)


@contextmanager
def recording(tracer: Tracer) -> Iterator[None]:
    """The tracer on; a module that is called names its parameters and buffers."""

    def name_parameters(module: torch.nn.Module, args: Any) -> None:
        for name, x in (*module.named_parameters(), *module.named_buffers()):
            tracer.parameters.setdefault(id(x), name.replace(".", "_"))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(name_parameters)
    try:
        # Below autograd, composite operations reach the tracer before they decompose.
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), tracer, _Calls():
            yield
    finally:
        hook.remove()
