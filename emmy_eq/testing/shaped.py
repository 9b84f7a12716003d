"""Steps whose operands' shapes depend on one another: products, convolutions, attention, gathers.  Their further operands are new inputs.

Each takes a draw of integers, the first operand's shape, and ``new(shape, kind)``, which gives a new input's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Shape = tuple[int, ...]
Integer = Callable[[int, int], int]  # a number from the first to the last, both included
New = Callable[[Shape, str], str]
Shaped = Callable[[Integer, str, Shape, New], str]


def _matmul(integer: Integer, x: str, shape: Shape, new: New) -> str:
    columns = integer(1, 9)
    return f"{x} @ {new((shape[-1], columns), 'operand')}"


def _batched(integer: Integer, x: str, shape: Shape, new: New) -> str:
    return f"torch.matmul({x}, {new((*shape[:-2], shape[-1], integer(1, 9)), 'operand')})"


def _vector(integer: Integer, x: str, shape: Shape, new: New) -> str:
    return f"torch.matmul({x}, {new((shape[-1],), 'operand')})"


def _linear(integer: Integer, x: str, shape: Shape, new: New) -> str:
    columns = integer(1, 9)
    return f"F.linear({x}, {new((columns, shape[-1]), 'operand')}, {new((columns,), 'operand')})"


def _chain(integer: Integer, x: str, shape: Shape, new: New) -> str:
    middle = integer(1, 9)
    return f"{x} @ {new((shape[-1], middle), 'operand')} @ {new((middle, integer(1, 9)), 'operand')}"


def _low_rank(integer: Integer, x: str, shape: Shape, new: New) -> str:
    columns, rank = integer(1, 9), integer(1, 3)
    w, a, b = new((shape[-1], columns), "operand"), new((shape[-1], rank), "operand"), new((rank, columns), "operand")
    return f"{x} @ {w} + ({x} @ {a}) @ {b}" if integer(0, 1) else f"{x} @ ({w} + {a} @ {b})"


def _norm_projection(integer: Integer, x: str, shape: Shape, new: New) -> str:
    w = new((shape[-1], integer(1, 9)), "operand")
    norm = f"F.rms_norm({x}, ({shape[-1]},), {new((shape[-1],), 'operand')}, 1e-5)"
    return f"{norm} @ {w}" if integer(0, 1) else f"F.layer_norm({x}, ({shape[-1]},)) @ {w}"


def _attention(integer: Integer, x: str, shape: Shape, new: New) -> str:
    keys, width = integer(1, 9), integer(1, 5)
    k, v = new((*shape[:-2], keys, shape[-1]), "operand"), new((*shape[:-2], keys, width), "operand")
    if integer(0, 1):
        return f"F.scaled_dot_product_attention({x}, {k}, {v})"
    return f"torch.softmax({x} @ {k}.transpose(-1, -2) * 0.5, -1) @ {v}"


def _causal(integer: Integer, x: str, shape: Shape, new: New) -> str:
    k, v = new(shape, "operand"), new(shape, "operand")
    return f"F.scaled_dot_product_attention({x}, {k}, {v}, is_causal=True)"


def _convolution(integer: Integer, x: str, shape: Shape, new: New) -> str:
    width, stride, padding = integer(1, 3), integer(1, 2), integer(0, 1)
    return f"F.conv1d({x}, {new((integer(1, 4), shape[-2], width), 'operand')}, stride={stride}, padding={padding})"


def _convolution_2d(integer: Integer, x: str, shape: Shape, new: New) -> str:
    weight = new((integer(1, 4), shape[-3], integer(1, 3), integer(1, 2)), "operand")
    return f"F.conv2d({x}, {weight}, padding={integer(0, 1)}, stride={integer(1, 2)})"


def _pool(integer: Integer, x: str, shape: Shape, new: New) -> str:
    kind = ("max_pool1d", "avg_pool1d")[integer(0, 1)]
    return f"F.{kind}({x}, {integer(1, 3)}, {integer(1, 2)})"


def _pool_2d(integer: Integer, x: str, shape: Shape, new: New) -> str:
    kind = ("max_pool2d", "avg_pool2d")[integer(0, 1)]
    return f"F.{kind}({x}, {integer(1, 3)}, {integer(1, 2)}, padding={0})"


def _group_norm(integer: Integer, x: str, shape: Shape, new: New) -> str:
    groups = [g for g in range(1, shape[1] + 1) if shape[1] % g == 0]
    return f"F.group_norm({x}, {groups[integer(0, len(groups) - 1)]})"


def _embedding(integer: Integer, x: str, shape: Shape, new: New) -> str:
    return f"F.embedding({new((integer(1, 4), integer(1, 3)), f'below {shape[0]}')}, {x})"


def _gather(integer: Integer, x: str, shape: Shape, new: New) -> str:
    d = integer(0, len(shape) - 1)
    index = new((*shape[:d], integer(1, 4), *shape[d + 1 :]), f"below {shape[d]}")
    return f"torch.gather({x}, {d}, {index})"


def _fancy(integer: Integer, x: str, shape: Shape, new: New) -> str:
    a, b = (new((integer(1, 1), 3), f"below {n}") for n in shape[:2])
    return f"{x}[{a}, {b}]"


def _scatter_add(integer: Integer, x: str, shape: Shape, new: New) -> str:
    d = integer(0, len(shape) - 1)
    name = ("scatter_add", "scatter")[0]
    return f"{x}.{name}({d}, {new(shape, f'below {shape[d]}')}, {x})"


def _index_add(integer: Integer, x: str, shape: Shape, new: New) -> str:
    index = new((shape[0],), f"below {shape[0]}")
    return f"{x}.index_add(0, {index}, {x})"


def _cross_entropy(integer: Integer, x: str, shape: Shape, new: New) -> str:
    reduction = ("mean", "sum", "none")[integer(0, 2)]
    return f"F.cross_entropy({x}, {new(shape[:1], f'below {shape[1]}')}, reduction='{reduction}')"


def _addmm(integer: Integer, x: str, shape: Shape, new: New) -> str:
    inner = integer(1, 9)
    return f"torch.addmm({x}, {new((shape[0], inner), 'operand')}, {new((inner, shape[1]), 'operand')}, beta=0.5, alpha=2.0)"


def _einsum(integer: Integer, x: str, shape: Shape, new: New) -> str:
    return f"torch.einsum('abc,dbc->ad', {x}, {new((integer(1, 5), *shape[1:]), 'operand')})"


def shaped() -> Mapping[str, tuple[Shaped, int, int, bool]]:
    """By name: the step, the least and the greatest rank of x, and whether exact operands give an exact result."""
    return {
        "matmul": (_matmul, 1, 4, True),
        "batched": (_batched, 2, 4, True),
        "vector": (_vector, 1, 3, True),
        "linear": (_linear, 1, 4, True),
        "chain": (_chain, 2, 3, True),
        "low_rank": (_low_rank, 2, 3, True),
        "norm_projection": (_norm_projection, 2, 3, False),
        "attention": (_attention, 2, 4, False),
        "causal": (_causal, 3, 4, False),
        "convolution": (_convolution, 3, 3, True),
        "convolution_2d": (_convolution_2d, 4, 4, True),
        "pool": (_pool, 3, 3, False),
        "pool_2d": (_pool_2d, 4, 4, False),
        "group_norm": (_group_norm, 2, 4, False),
        "embedding": (_embedding, 2, 2, True),
        "gather": (_gather, 1, 3, True),
        "fancy": (_fancy, 2, 4, True),
        "scatter_add": (_scatter_add, 1, 3, True),
        "index_add": (_index_add, 1, 3, True),
        "cross_entropy": (_cross_entropy, 2, 2, False),
        "addmm": (_addmm, 2, 2, True),
        "einsum": (_einsum, 3, 3, True),
    }
