"""Runs a compiled program on its example inputs, compares it with float64, and times it beside eager and torch.compile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

from emmy_eq import torch_ir
from emmy_eq.capture.function import guarded
from emmy_eq.errors import InvalidInput, NoDevice
from emmy_eq.ops import FLOATS
from emmy_eq.timing import Times, interleaved

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled

# The accuracy contract: a result is at most so many times as far from float64 as eager PyTorch's is ...
EAGER_FACTOR = 4.0
# ... or within so many roundings of the result's own dtype, where eager happens to be exact.
ROUNDINGS = 4.0


@dataclass(frozen=True, slots=True)
class Result:
    """One output.  Errors are max |y - ref| / max |ref| over finite positions (integers: max |y - ref|), infinite where NaN or
    infinity stand elsewhere than in the reference; None unless asked for."""

    shape: tuple[int, ...]
    dtype: str
    preview: str
    error: float | None = None
    eager_error: float | None = None
    limit: float | None = None

    @property
    def passed(self) -> bool:
        return self.error is None or self.limit is None or self.error <= self.limit


@dataclass(frozen=True, slots=True)
class Outcome:
    """``times``: of ``eager``, ``compile`` and ``emmy_eq``, where asked for."""

    device: str
    outputs: tuple[Result, ...]
    times: Mapping[str, Times]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.outputs)

    def record(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return asdict(self) | {"passed": self.passed}


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "sim"


def require_cuda(what: str, instead: str = "") -> None:
    """Raise `NoDevice` for ``what`` where torch sees no GPU."""
    if not torch.cuda.is_available():
        raise NoDevice(what, f", and torch {torch.__version__} sees none here{instead}")


def run_example(compiled: Compiled, device: str, check: bool = False, bench: bool = False) -> Outcome:
    """``device`` is ``sim`` or ``cuda``; an in-place program writes copies of its examples."""
    if device == "cuda":
        require_cuda("--device cuda", "; --device sim runs the simulator")
    if bench and device != "cuda":
        require_cuda("--bench")
        raise InvalidInput("--bench", "only a GPU can be timed; the simulator checks results")
    program = compiled.torch_ir
    given = {name: x.to("cuda" if device == "cuda" else "cpu") for name, x in program.examples().items()}
    results = compiled.run(_copies(given))
    outputs = tuple(_plain(x) for x in results)
    if check:
        eager = guarded(lambda: torch_ir.run(program, _copies(given)), "the program in eager PyTorch, which --check compares with")
        reference = in_float64(program, given)
        coarse = eager
        if compiled.options.accuracy == "fast":
            with _Tf32():  # type: ignore[no-untyped-call]
                coarse = torch_ir.run(program, _copies(given))
        outputs = tuple(checked(x, e, r, c) for x, e, r, c in zip(results, eager, reference, coarse, strict=True))
    return Outcome(device, outputs, _times(compiled, given) if bench else {})


def _copies(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in given.items()}


def in_float64(program: torch_ir.Program, given: Mapping[str, Tensor]) -> list[Tensor]:
    """The outputs by eager PyTorch with every float tensor, and every float dtype that an operation names, widened to float64."""

    def widen(key: str, value: Any) -> Any:
        return "f64" if key == "dtype" and value in FLOATS else value

    nodes = tuple(replace(n, arguments=tuple((k, widen(k, v)) for k, v in n.arguments)) for n in program.nodes)
    wide = {name: x.double() if x.is_floating_point() else x.clone() for name, x in given.items()}
    return torch_ir.run(replace(program, nodes=nodes), wide)


def _plain(x: Tensor) -> Result:
    values = " ".join(f"{v:.6g}" for v in x.flatten()[:4].tolist())
    return Result(tuple(x.shape), torch_ir.dtype_name(x.dtype), values + (" ..." if x.numel() > 4 else ""))


class _Tf32(TorchDispatchMode):
    """Eager whose products round f32 operands to tf32 (11 bits), as ``fast`` and PyTorch's own ``allow_tf32`` do."""

    _PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution", "_scaled_dot_product")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__.startswith(self._PRODUCTS):
            args = tuple(_to_tf32(x) for x in args)
        return func(*args, **(kwargs or {}))


def _to_tf32(x: Any) -> Any:
    """The nearest number of 11 bits, ties away from zero (`cvt.rna.tf32.f32`); infinity and NaN stay."""
    if not isinstance(x, Tensor) or x.dtype != torch.float32:
        return x
    near = ((x.view(torch.int32) + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)
    return torch.where(x.isfinite(), near, x)


def checked(result: Tensor, eager: Tensor, reference: Tensor, coarse: Tensor | None = None) -> Result:
    """Where eager alone has no finite value, since it overflowed on the way, it sets no limit, and the result may have none either.

    ``coarse``: eager as the contract lets it compute, whose error counts for the limit too.
    """
    lost = ~eager.isfinite() & reference.to(eager.dtype).isfinite()
    eager_error = distance(eager[~lost], reference[~lost])
    worst = eager_error if coarse is None else max(eager_error, distance(coarse[~lost], reference[~lost]))
    limit = max(EAGER_FACTOR * worst, ROUNDINGS * torch.finfo(result.dtype).eps) if result.is_floating_point() else 0.0
    judged = ~(lost & ~result.isfinite()) if result.shape == reference.shape else ...
    return replace(_plain(result), error=distance(result[judged], reference[judged]), eager_error=eager_error, limit=limit)


def distance(result: Tensor, reference: Tensor) -> float:
    """See `Result`; infinite too where the shapes differ."""
    if result.shape != reference.shape:
        return float("inf")
    if not result.is_floating_point():
        return float((result.long() - reference.long().to(result.device)).abs().max()) if result.numel() else 0.0
    y, ref = result.double(), reference.double().to(result.device)
    finite = ref.isfinite() & y.isfinite()
    # A finite float64 value beyond the result's range rounds to infinity there, rightly.
    special = ref.to(result.dtype).double()
    if not torch.equal(y.isnan(), ref.isnan()) or not torch.equal(y[~finite & ~y.isnan()], special[~finite & ~y.isnan()]):
        return float("inf")
    scale = ref[finite].abs().max() if bool(finite.any()) else torch.tensor(0.0)
    worst = (y - ref)[finite].abs().max() if bool(finite.any()) else torch.tensor(0.0)
    return float(worst / scale) if scale > 0 else float(worst)


def graph_module(program: torch_ir.Program) -> fx.GraphModule:
    """The captured program as a module of all its inputs and constants, for eager and torch.compile."""
    graph = fx.Graph()
    values: list[Any] = [graph.placeholder(i.name) for i in program.inputs]

    def resolve(key: str, x: Any) -> Any:
        if isinstance(x, tuple):
            return [resolve(key, y) for y in x]
        if isinstance(x, torch_ir.Ref):
            several = x.node >= len(program.inputs) and len(program.nodes[x.node - len(program.inputs)].results) > 1
            return graph.call_function(_item, (values[x.node], x.output)) if several else values[x.node]
        return torch_ir.torch_dtype(x) if key == "dtype" and isinstance(x, str) else x

    for node in program.nodes:
        values.append(graph.call_function(torch_ir.operator(node.op), (), {k: resolve(k, v) for k, v in node.arguments}))
    graph.output(tuple(resolve("", o.value) for o in program.outputs))
    return fx.GraphModule(torch.nn.Module(), graph)


def _item(values: Any, index: int) -> Any:
    return values[index]


def _times(compiled: Compiled, given: Mapping[str, Tensor]) -> dict[str, Times]:
    eager = graph_module(compiled.torch_ir)
    fast = torch.compile(eager)
    args = [given[i.name] for i in compiled.torch_ir.inputs]
    with torch.no_grad():
        return interleaved({"eager": lambda: eager(*args), "compile": lambda: fast(*args), "emmy_eq": lambda: compiled.run(given)})
