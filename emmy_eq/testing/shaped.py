"""Steps whose operands' shapes depend on one another: products, convolutions, attention, gathers.  Further operands are new inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from emmy_eq.torch_ir import dtype_name

if TYPE_CHECKING:
    from emmy_eq.testing.draft import Draft, Entry

Shape = tuple[int, ...]


@dataclass(slots=True)
class Draw:
    """What a step on ``x`` may ask for; ``new``, ``finite``, ``index`` and ``mask`` give the name of a new input; ``used``: x and those."""

    draft: Draft
    x: Entry
    used: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.used.append(self.x)

    @property
    def special(self) -> bool:
        """Whether operands may hold infinities and NaN."""
        return self.draft.special

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return self.draft.integer(low, high)

    def choice(self, options: Sequence[int]) -> int:
        found: int = self.draft.choose(options)
        return found

    def extent(self) -> int:
        """Of an axis that takes the place of the first operand's last."""
        return self.draft.extent(beside=prod(self.x.shape[:-1]))

    def new(self, *shape: int) -> str:
        """A value of the first operand's dtype."""
        return self._input(shape, dtype_name(self.x.value.dtype), self.draft.kind())

    def finite(self, *shape: int) -> str:
        """The same, without infinities and NaN."""
        return self._input(shape, dtype_name(self.x.value.dtype), "whole" if self.draft.special else self.draft.kind())

    def index(self, below: int, *shape: int) -> str:
        """Whole numbers from 0 to ``below`` - 1."""
        return self._input(shape, "i64", f"below {below}")

    def mask(self, *shape: int) -> str:
        return self._input(shape, "bool", "whole")

    def _input(self, shape: Shape, dtype: str, kind: str) -> str:
        self.used.append(self.draft.input(shape, dtype, kind))
        return self.used[-1].name


Shaped = Callable[[Draw, str, Shape], str]


def _matmul(draw: Draw, x: str, shape: Shape) -> str:
    return f"{x} @ {draw.new(shape[-1], draw.extent())}"


def _batched(draw: Draw, x: str, shape: Shape) -> str:
    return f"torch.matmul({x}, {draw.new(*shape[:-2], shape[-1], draw.extent())})"


def _vector(draw: Draw, x: str, shape: Shape) -> str:
    return f"torch.matmul({x}, {draw.new(shape[-1])})"


def _linear(draw: Draw, x: str, shape: Shape) -> str:
    columns = draw.extent()
    return f"F.linear({x}, {draw.new(columns, shape[-1])}, {draw.new(columns)})"


def _chain(draw: Draw, x: str, shape: Shape) -> str:
    middle = draw.extent()
    return f"{x} @ {draw.new(shape[-1], middle)} @ {draw.new(middle, draw.extent())}"


def _low_rank(draw: Draw, x: str, shape: Shape) -> str:
    columns, rank = draw.extent(), draw.integer(1, 3)
    w, a, b = draw.new(shape[-1], columns), draw.new(shape[-1], rank), draw.new(rank, columns)
    return f"{x} @ {w} + ({x} @ {a}) @ {b}" if draw.integer(0, 1) else f"{x} @ ({w} + {a} @ {b})"


def _norm_projection(draw: Draw, x: str, shape: Shape) -> str:
    w = draw.new(shape[-1], draw.extent())
    norm = f"F.rms_norm({x}, ({shape[-1]},), {draw.new(shape[-1])}, 1e-5)"
    return f"{norm} @ {w}" if draw.integer(0, 1) else f"F.layer_norm({x}, ({shape[-1]},)) @ {w}"


def _gated(draw: Draw, x: str, shape: Shape) -> str:
    columns = draw.extent()
    return f"F.silu({x} @ {draw.new(shape[-1], columns)} * 0.1) * ({x} @ {draw.new(shape[-1], columns)})"


def _attention(draw: Draw, x: str, shape: Shape) -> str:
    """With one of the masks that models have, or none; a row may be masked as a whole: then the result is 0, and eager's is 0 * v."""
    keys, form = draw.extent(), draw.integer(0, 7)
    k = (draw.finite if form == 2 else draw.new)(*shape[:-2], keys, shape[-1])
    v = (draw.finite if form in (0, 2, 3) else draw.new)(*shape[:-2], keys, draw.extent())
    scores, values = f"{x} @ {k}.transpose(-1, -2) * 0.2", f"{x}, {k}, {v}"
    at = f"torch.arange({shape[-2]})[:, None] - torch.arange({keys})"  # how far a key is behind its query
    match form:
        case 0:
            return f"F.scaled_dot_product_attention({values})"
        case 1:
            return f"torch.softmax({scores}, -1) @ {v}"
        case 2:
            return f"F.scaled_dot_product_attention({_counted(draw, x)}, {k}, {v}, attn_mask={draw.mask(shape[-2], keys)})"
        case 3:
            return f"F.scaled_dot_product_attention({values}, attn_mask={draw.new(shape[-2], keys)}, scale=0.3)"
        case 4:
            return f"torch.softmax(torch.tanh({scores} / 5) * 5, -1) @ {v}"
        case 5:
            return f"torch.softmax(({scores}).masked_fill(({at}).abs() > {draw.integer(0, 9)}, -torch.inf), -1).nan_to_num(0.0) @ {v}"
        case 6:
            return f"torch.softmax({scores} - 0.1 * ({at}).abs(), -1).to({x}.dtype) @ {v}"
    return f"torch.softmax(({scores}).masked_fill({draw.mask(keys)}, -1e4), -1) @ {v}"


def _causal(draw: Draw, x: str, shape: Shape) -> str:
    return f"F.scaled_dot_product_attention({_counted(draw, x)}, {draw.finite(*shape)}, {draw.finite(*shape)}, is_causal=True)"


def _counted(draw: Draw, x: str) -> str:
    """Finite, so that with finite keys no score is NaN or +inf: where it is masked, it would remain in eager, whose mask adds -inf."""
    return f"{x}.nan_to_num(0.0, 4.0, -4.0)" if draw.special else x


def _grouped(draw: Draw, x: str, shape: Shape) -> str:
    """Some query heads share a key head."""
    keys, heads = draw.extent(), draw.choice([h for h in range(1, shape[-3] + 1) if shape[-3] % h == 0])
    k, v = (new(*shape[:-3], heads, keys, shape[-1]) for new in (draw.new, draw.finite))
    return f"F.scaled_dot_product_attention({x}, {k}, {v}, enable_gqa=True)"


def _convolution(draw: Draw, x: str, shape: Shape) -> str:
    width, stride, padding = draw.integer(1, 3), draw.integer(1, 2), draw.integer(0, 1)
    return f"F.conv1d({x}, {draw.new(draw.integer(1, 4), shape[-2], width)}, stride={stride}, padding={padding})"


def _convolution_2d(draw: Draw, x: str, shape: Shape) -> str:
    weight = draw.new(draw.integer(1, 4), shape[-3], draw.integer(1, 3), draw.integer(1, 2))
    return f"F.conv2d({x}, {weight}, padding={draw.integer(0, 1)}, stride={draw.integer(1, 2)})"


def _transposed(draw: Draw, x: str, shape: Shape) -> str:
    weight = draw.new(shape[-2], draw.integer(1, 3), draw.integer(1, 3))
    return f"F.conv_transpose1d({x}, {weight}, stride={draw.integer(1, 2)})"


def _adaptive(draw: Draw, x: str, shape: Shape) -> str:
    return f"F.adaptive_avg_pool1d({x}, {draw.integer(1, 3)})"


def _batch_norm(draw: Draw, x: str, shape: Shape) -> str:
    return f"F.batch_norm({x}, {draw.new(shape[1])}, {draw.new(shape[1])}.abs() + 0.5)"


def _baddbmm(draw: Draw, x: str, shape: Shape) -> str:
    inner = draw.extent()
    return f"torch.baddbmm({x}, {draw.new(shape[0], shape[1], inner)}, {draw.new(shape[0], inner, shape[2])}, beta=0.5)"


def _pool(draw: Draw, x: str, shape: Shape) -> str:
    kind = ("max_pool", "avg_pool")[draw.integer(0, 1)]
    return f"F.{kind}{len(shape) - 2}d({x}, {draw.integer(1, 3)}, {draw.integer(1, 2)})"


def _group_norm(draw: Draw, x: str, shape: Shape) -> str:
    return f"F.group_norm({x}, {draw.choice([g for g in range(1, shape[1] + 1) if shape[1] % g == 0])})"


def _embedding(draw: Draw, x: str, shape: Shape) -> str:
    return f"F.embedding({draw.index(shape[0], draw.integer(1, 4), draw.integer(1, 3))}, {x})"


def _gather(draw: Draw, x: str, shape: Shape) -> str:
    d = draw.integer(0, len(shape) - 1)
    return f"torch.gather({x}, {d}, {draw.index(shape[d], *shape[:d], draw.integer(1, 4), *shape[d + 1 :])})"


def _fancy(draw: Draw, x: str, shape: Shape) -> str:
    a, b = (draw.index(n, draw.integer(1, 2), 3) for n in shape[:2])
    return f"{x}[{a}, {b}[:1]]"


def _scatter(draw: Draw, x: str, shape: Shape) -> str:
    """Added up where positions meet; overwriting is tested where each position is written once."""
    d = draw.integer(0, len(shape) - 1)
    return f"{x}.scatter_add({d}, {draw.index(shape[d], *shape)}, {x})"


def _index_add(draw: Draw, x: str, shape: Shape) -> str:
    return f"{x}.index_add(0, {draw.index(shape[0], shape[0])}, {x})"


def _cross_entropy(draw: Draw, x: str, shape: Shape) -> str:
    reduction = ("mean", "sum", "none")[draw.integer(0, 2)]
    return f"F.cross_entropy({x}, {draw.index(shape[1], shape[0])}, reduction='{reduction}')"


def _addmm(draw: Draw, x: str, shape: Shape) -> str:
    inner = draw.extent()
    return f"torch.addmm({x}, {draw.new(shape[0], inner)}, {draw.new(inner, shape[1])}, beta=0.5, alpha=2.0)"


def _einsum(draw: Draw, x: str, shape: Shape) -> str:
    return f"torch.einsum('abc,dbc->ad', {x}, {draw.new(draw.integer(1, 5), *shape[1:])})"


def _recurrence(draw: Draw, x: str, shape: Shape) -> str:
    """h[t] = a[t] h[t-1] + x[t] along the last dim, by the quotient of running products."""
    run = f"torch.cumprod({draw.new(*shape)}.abs().clamp(0.8, 1.2), -1)"
    return f"{run} * torch.cumsum({x} / {run}, -1)"


def products() -> Mapping[str, tuple[Shaped, int, int, bool]]:
    """As `shaped`, contractions alone: what tensor cores are for."""
    return {
        "matmul": (_matmul, 1, 4, True),
        "batched": (_batched, 2, 4, True),
        "linear": (_linear, 1, 4, True),
        "chain": (_chain, 2, 3, True),
        "low_rank": (_low_rank, 2, 3, True),
        "norm_projection": (_norm_projection, 2, 3, False),
        "gated": (_gated, 2, 3, False),
        "attention": (_attention, 2, 4, False),
        "causal": (_causal, 3, 4, False),
        "grouped": (_grouped, 3, 4, False),
    }


def shaped() -> Mapping[str, tuple[Shaped, int, int, bool]]:
    """By name: the step, the least and the greatest rank of x, and whether exact operands give an exact result."""
    return {
        **products(),
        "vector": (_vector, 1, 3, True),
        "convolution": (_convolution, 3, 3, True),
        "convolution_2d": (_convolution_2d, 4, 4, True),
        "transposed": (_transposed, 3, 3, True),
        "adaptive": (_adaptive, 3, 3, False),
        "batch_norm": (_batch_norm, 2, 4, False),
        "baddbmm": (_baddbmm, 3, 3, True),
        "pool": (_pool, 3, 4, False),
        "group_norm": (_group_norm, 2, 4, False),
        "embedding": (_embedding, 2, 2, True),
        "gather": (_gather, 1, 3, True),
        "fancy": (_fancy, 2, 4, True),
        "scatter": (_scatter, 1, 3, True),
        "index_add": (_index_add, 1, 3, True),
        "cross_entropy": (_cross_entropy, 2, 2, False),
        "addmm": (_addmm, 2, 2, True),
        "einsum": (_einsum, 3, 3, True),
        "recurrence": (_recurrence, 1, 3, False),
    }
