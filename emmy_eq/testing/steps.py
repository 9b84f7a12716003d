"""What a random program may do next: one row a spelling, with placeholders that are drawn where they are mentioned.

    {x}      a value of the row's kind             {y} {z}  another that broadcasts with x, of the same kind
    {m}      a bool mask that broadcasts with x    {w}      a shape that x may be viewed as
    {d}      a dim of x                            {D}      some dims of x, as a tuple
    {c}      a float constant                      {i}      a small integer
    {b}      True or False                         {h}      a float dtype
    {n}      the extent of dim d                   {k}      a position along d
    {s}      an i64 tensor of positions along d    {p}      an order of x's dims

``keeps``: exact operands (whole numbers, in a dtype that holds all that happens to them) give an exact result.  ``needs``: only
exact operands, since the result jumps, and another rounding of the operand would give another result.  ``loses``: neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["float", "int", "bool", "any"]
Exactness = Literal["keeps", "needs", "loses"]


@dataclass(frozen=True, slots=True)
class Row:
    text: str
    kind: Kind
    exactness: Exactness
    rank: int = 0
    results: int = 1  # a tuple of so many where more than 1


def _rows(kind: Kind, exactness: Exactness, texts: str, rank: int = 0, results: int = 1) -> Iterator[Row]:
    for line in texts.strip().splitlines():
        yield Row(line.strip(), kind, exactness, rank, results)


_SMOOTH = """
    torch.exp({x}.clamp(max=4))
    torch.exp(-{x}.abs())
    torch.exp2({x}.clamp(max=4))
    torch.expm1({x}.clamp(max=4))
    torch.log({x}.abs() + 0.5)
    torch.log2({x}.abs() + 0.5)
    torch.log10({x}.abs() + 0.5)
    torch.log1p({x}.abs())
    torch.sqrt({x}.abs())
    torch.rsqrt({x}.abs() + 0.5)
    torch.reciprocal({x}.abs() + 0.5)
    torch.sin({x})
    torch.cos({x})
    torch.tan({x}.clamp(-1, 1))
    torch.tanh({x})
    torch.atan({x})
    torch.asin({x}.clamp(-0.9, 0.9))
    torch.acos({x}.clamp(-0.9, 0.9))
    torch.sinh({x}.clamp(-3, 3))
    torch.cosh({x}.clamp(-3, 3))
    torch.erf({x})
    torch.sigmoid({x})
    F.silu({x})
    F.gelu({x})
    F.gelu({x}, approximate='tanh')
    F.softplus({x})
    F.elu({x})
    F.celu({x}, 1.5)
    F.selu({x})
    F.mish({x})
    F.logsigmoid({x})
    F.hardswish({x})
    F.hardsigmoid({x})
    {x} / {c}
    {x} / ({y}.abs() + 0.5)
    {c} / ({x}.abs() + 0.5)
    torch.pow({x}.abs() + 0.5, {c})
    torch.pow({x}.abs() + 0.5, {y}.clamp(-2, 2))
    torch.pow({c}, {x}.clamp(-2, 2))
    torch.lerp({x}, {y}, 0.25)
    torch.lerp({x}, {y}, {z}.clamp(0, 1))
    torch.addcdiv({x}, {y}, {z}.abs() + 0.5)
    torch.atan2({x}, {y}.abs() + 0.5)
    F.mse_loss({x}, {x} * 0.5)
    F.l1_loss({x}, {x} * 0.5)
    F.smooth_l1_loss({x}, {x} * 0.5)
    F.binary_cross_entropy_with_logits({x}, {x} * 0 + 0.25)
    F.kl_div(-{x}.abs(), {x}.abs() * 0.1 + 0.1, reduction='sum')
    torch.rsub({x}, {y}, alpha=0.3)
    torch.add({x}, {y}, alpha=0.3)
    torch.special.expm1({x}.clamp(max=2))
    {x}.clone().mul_(0.3).add_({y})
"""

_SMOOTH_ALONG = """
    torch.softmax({x}, {d})
    torch.log_softmax({x}, {d})
    torch.softmax({x}.masked_fill({m}, float('-inf')), {d})
    torch.softmax({x}, {d}) * {y}
    (torch.softmax({x}, {d}) * {y}).sum({d})
    torch.logsumexp({x}, {D}, keepdim={b})
    {x}.mean({D}, keepdim={b})
    {x}.mean()
    {x}.var({D}, correction=0, keepdim={b})
    torch.sqrt({x}.var({D}, correction=0) + 0.1)
    torch.var_mean({x}, {D}, correction=0)[1]
    {x}.norm(dim={D})
    {x}.norm()
    {x}.var({d}) if {n} > 2 else {x} * 0.7
    torch.var_mean({x} * 0.9, {d})[0] if {n} > 2 else {x} * 0.7
    {x}.std({d}, keepdim={b}) if {n} > 2 else {x} * 0.3
    torch.std_mean({x} * 1.1, {D}, correction=0)[1]
    F.normalize({x} + 3, dim={d})
    F.softmin({x}, {d})
    torch.softmax({x} * 0.5, {d}, dtype=torch.float32)
    {x}.mean({d}, keepdim=True) - {x}
    {x}.logsumexp({d}) - {x}.mean({d})
    torch.einsum('...i,...i->...', {x}, {y} + {x})
    torch.linalg.vector_norm({x}, 1, {D})
    ({x} * {y}).sum({D}, keepdim={b})
    ({x} - {x}.amax({d}, keepdim=True)).exp().sum({d})
    {x}.clamp(-1.5, 1.5).prod({d})
    torch.logcumsumexp({x}, {d})
    torch.log(torch.cumsum(torch.exp({x}.clamp(max=4)), {d}))
    torch.cumsum({x} * {y}, {d})
    torch.softmax({x}.flatten({d}), -1)
    {x}.softmax({d}).amax({D})
    torch.cumprod({x}.clamp(-1.5, 1.5), {d})
    torch.cumsum({x}, {d})
    F.layer_norm({x}, {x}.shape[-1:])
    F.rms_norm({x}, {x}.shape[-1:], eps=1e-5)
    {x} * torch.rsqrt(({x} * {x}).mean({d}, keepdim=True) + 1e-3)
    {x} / {x}.abs().amax({d}, keepdim=True).clamp(min=0.5)
    {x} / ({x}.abs().sum({d}, keepdim=True) + 1)
    {x} @ {x}.transpose(-1, -2) if {x}.dim() > 1 else {x} * 3
    torch.softmax({x} @ {x}.transpose(-1, -2), -1) @ {x} if {x}.dim() > 1 else {x} * 3
    torch.outer({x}.flatten()[:7], {x}.flatten()[:5])
    F.glu(torch.cat([{x}, {y} + {x}], {d}), {d})
"""

_EXACT = """
    -{x}
    {x}.abs()
    {x} + {y}
    {x} - {y}
    {x} * {y}
    {x} + {i}
    {i} - {x}
    {x} * {i}
    torch.maximum({x}, {y})
    torch.minimum({x}, {y})
    {x}.clamp(-1, 2)
    {x}.clamp(min={i})
    {x}.clamp({y} - 1, {y})
    torch.clamp_min({x}, {y})
    torch.clamp_max({x}, {i})
    {x} * torch.tensor({i})
    {x}.max() if {x}.numel() else {x} + 1
    {x}.min() if {x}.numel() else {x} + 1
    {x}.new_zeros({x}.shape) + torch.ones_like({x}) - {x}
    torch.where({m}, {x}, {y})
    torch.where({m}, {x}, {i})
    {x}.masked_fill({m}, {i})
    {x} * {x}
    {x} ** 2
    torch.square({x})
    {x}.contiguous()
    {x}.clone().fill_(3) + {y}
    {x}.clone().add_({y} * {i} + {x} * 0)
    {x}.clone().masked_fill_({m}, {i})
    {x}.clone().copy_({x} * 2)
    {x}.expand(3, *{x}.shape)
    {x}.expand(*{x}.shape)
    {x}.reshape({w})
    {x}.reshape(-1)
    {x}.unsqueeze({d})
    {x}.squeeze()
    {x}.permute({p})
    {x}.sum()
    {x}.new_ones(()) + {x}
    torch.zeros_like({x}) + {y}
    torch.full_like({x}, 2) * {y}
    torch.broadcast_tensors({x}, {y})[1]
    torch.stack([{x}, {x} + 1])
"""

_EXACT_FLOAT = """
    {x} * 0.5
    {x} * {x} * {x}
    F.relu({x})
    F.relu6({x})
    F.hardtanh({x})
    F.leaky_relu({x}, 0.5)
    F.threshold({x}, 0.5, 2.0)
    torch.fmax({x}, {y})
    torch.fmin({x}, {y})
    torch.addcmul({x}, {y}, {z})
    {x}.to({h})
    {x}.to({h}) + {y}
    torch.copysign({x}, {y})
"""

_EXACT_ALONG = """
    {x}.sum({D}, keepdim={b})
    {x}.sum({d})
    {x}.amax({D}, keepdim={b})
    {x}.amin({D}, keepdim={b})
    torch.cumsum({x}, {d})
    {x}.flip({D})
    {x}.roll({i}, {d})
    {x}.transpose({d}, 0)
    {x}.movedim(0, {d})
    {x}.select({d}, {k})
    {x}.narrow({d}, {k}, 1)
    {x}.squeeze({d})
    {x}.split([{k}, {n} - {k}], {d})[1]
    {x}.movedim((0, {d}), ({d}, 0))
    {x}.index_put(({s},), {x}.new_full((), 2)) if {d} == 0 else {x} * 2
    {x}.scatter({d}, torch.zeros_like({x}.narrow({d}, 0, 1), dtype=torch.int64), {x} * 2)
    {x}[..., {k} % {x}.shape[-1]:]
    {x}[..., ::2]
    {x}[{k} % {x}.shape[0]]
    {x}[None]
    {x}.flatten()
    {x}.flatten({d})
    {x}.unflatten({d}, (1, -1))
    {x}.repeat(2, *[1] * ({x}.dim() - 1))
    {x}.repeat_interleave(2, {d})
    torch.cat([{x}, {y} + {x}], {d})
    torch.cat([{x}, {x} * 2, {x}], {d})
    torch.stack([{x}, {y} + {x}], {d})
    {x}.chunk(2, {d})[0]
    {x}.split(2, {d})[-1]
    {x}.unbind({d})[-1]
    F.pad({x}, (1, 2))
    F.pad({x}, (1, 0), value=3)
    torch.index_select({x}, {d}, {s})
    torch.take_along_dim({x}, {x}.argsort({d}).clamp(0, 0), {d})
    {x}[{k} % {x}.shape[0], ...]
    {x}.index_add({d}, torch.arange({n}), {x})
    {x}.index_fill({d}, {s}, 2)
    {x}.scatter({d}, torch.zeros_like({x}, dtype=torch.int64)[..., :1], 5) if {x}.dim() == 1 else {x} + 1
    {x}.unfold({d}, 1, 1)
    {x}.unfold({d}, min(2, {n}), 1)
    {x}.unsqueeze({d}).expand(*{x}.shape[:{d}], 4, *{x}.shape[{d}:])
    {x}.T if {x}.dim() == 2 else {x} * 2
    {x}[{s}] if {d} == 0 else {x} * 2
    {x} - {x}.amax({d}, keepdim=True)
    {x} + {x}.sum({d}, keepdim=True)
    {x} * torch.arange({x}.shape[-1])
    (lambda t: (t.select({d}, {k}).add_(1), t)[1])({x}.clone())
    (lambda t: (t.narrow({d}, {k}, 1).zero_(), t)[1])({x}.clone())
    (lambda t: (t[..., ::2].mul_(2), t)[1])({x}.clone())
    (lambda t: (t.transpose(0, {d}).flip(0).add_(1), t)[1])({x}.clone())
    torch.take({x}, {s})
    {x}.tensor_split(2, {d})[1]
    {x}.index_copy({d}, torch.arange({n}), {x} * 2)
    {x}.scatter_reduce({d}, torch.zeros_like({x}, dtype=torch.int64), {x}, 'amax')
    {x}.tile(2)
    {x}.swapaxes({d}, -1)
    {x}.roll(({i}, 1), ({d}, -1))
    {x}.unfold({d}, min(3, {n}), 2)
    {x}.narrow({d}, {k} // 2, {n} - {k}).sum({d})
    {x}.unsqueeze({d}).expand(*{x}.shape[:{d}], 3, *{x}.shape[{d}:]).sum(({d}, -1))
    {x}.flip({d}).cumsum({d}).flip({d})
    torch.diag_embed({x}, 1)
    {x}.as_strided((3, 2, 2), (1, 1, 0), 1) if {x}.numel() > 4 else {x} + 2
    {x}.movedim({d}, 0).reshape({n}, -1).sum(1)
    {x}.cummax({d})[0]
    {x}.amax({D}) - {x}.amin({D})
    {x}.index_select({d}, {s}).sum({d})
    {x}.select_scatter({x}.select({d}, 0) * 2, {d}, {k})
    {x}.slice_scatter({x}.narrow({d}, {k}, 1) + 1, {d}, {k}, {k} + 1)
    {x}.as_strided((2, 1), (1, 1)) if {x}.numel() > 2 else {x} + 2
    F.interpolate({x}.reshape(1, 1, -1) * 1.0, scale_factor=2)
    F.interpolate({x}.reshape(1, 1, 1, -1) * 1.0, scale_factor=(2, 1))
    torch.where({x} == {x}.amax({d}, keepdim=True), {x}, {i})
"""

_EXACT_MATRIX = """
    {x}.tril()
    {x}.triu(1)
    {x}.mT
    {x}.diagonal(0, 0, 1)
    {x}.diagonal(1, -1, 0)
    {x}.diagonal(0, -2, -1).sum(-1)
    torch.rot90({x}, 1, (0, 1))
    {x}.sum((0, -1), keepdim={b})
    torch.block_diag({x}, {x}) if {x}.dim() == 2 else {x} * 2
    {x} + torch.eye({x}.shape[-2], {x}.shape[-1])
    {x}.transpose(-1, -2).reshape({x}.shape)
    {x}.sum((0, 1))
    {x}.amax((-1, -2))
"""

_JUMPS = """
    torch.floor({x})
    torch.ceil({x} * 0.5)
    torch.round({x} * 0.5)
    torch.trunc({x} * 0.5)
    torch.sign({x})
    torch.fmod({x}, {i} + 5)
    torch.remainder({x}, {i} + 5)
    torch.remainder({x}, -3)
    torch.div({x}, 2, rounding_mode='floor')
    torch.div({x}, 2, rounding_mode='trunc')
    {x} // 3
    torch.where({x} > 0, {x}, {y})
    ({x} > {y}).to({x}.dtype)
    {x}.to(torch.int64)
    {x}.to(torch.int32)
"""

_COMPARE = """
    {x} > {y}
    {x} >= {i}
    {x} < {y}
    {x} <= {y}
    {x} == {y}
    {x} != {i}
    {x}.to(torch.bool)
    torch.isfinite({x})
    torch.isnan({x})
    torch.isinf({x})
    {x} != {y}
    {x} <= {y}
    {x} >= {y}
"""

_POSITION = """
    {x}.argmax({d})
    {x}.argmin({d}, keepdim={b})
    {x}.argmax()
    torch.argsort({x}, dim={d}, stable=True)
    torch.topk({x}, min(2, {n}), {d})[0]
"""

_PAIRS = """
    {x}.max({d})
    {x}.min({d})
    torch.sort({x}, dim={d}, stable=True)
    {x}.cummax({d})
    {x}.cummin({d})
"""

_INT = """
    torch.div({x}, {i} + 4, rounding_mode='floor')
    torch.div({x}, {i} + 4, rounding_mode='trunc')
    {x}.clamp(-99, 99) // ({y} * 2 + 1)
    {x} % 3
    torch.fmod({x}, -3)
    torch.remainder({x}.clamp(-99, 99), {y} * 2 + 1)
    {x}.prod()
    {x} & {y}
    {x} | {y}
    {x} ^ {i}
    ~{x}
    {x} << 2
    {x} >> 1
    {x}.to(torch.float32)
    {x}.to(torch.int64)
    {x}.to(torch.int32)
    {x}.to(torch.bool)
    {x} * 0.5
    {x}.clamp(-2, 2) ** 3
    F.one_hot(({x} % 3).to(torch.int64), 3)
"""

_BOOL = """
    {x} & {y}
    {x} | {y}
    {x} ^ {y}
    ~{x}
    torch.logical_and({x}, {y})
    torch.logical_or({x}, {y})
    torch.logical_not({x})
    torch.logical_xor({x}, {y})
    {x}.any()
    {x}.all()
    {x}.to(torch.float32)
    {x}.to(torch.int64)
    {x}.to(torch.int32)
    {x}.sum()
    {x} * 1.5
    torch.where({x}, 1.0, -2.0)
"""

_BOOL_ALONG = """
    {x}.any({d})
    {x}.all({d}, keepdim={b})
    {x}.any({D})
    {x}.all({D})
    {x}.sum({d})
    {x}.cumsum({d})
    {x}.flip({d})
    {x}.transpose({d}, 0)
"""


@cache
def rows() -> tuple[Row, ...]:
    """Every spelling; `emmy_eq.testing.shaped` has those whose operands' shapes depend on one another."""
    return (
        *_rows("float", "loses", _SMOOTH),
        *_rows("float", "loses", _SMOOTH_ALONG, rank=1),
        *_rows("any", "keeps", _EXACT),
        *_rows("float", "keeps", _EXACT_FLOAT),
        *_rows("any", "keeps", _EXACT_ALONG, rank=1),
        *_rows("any", "keeps", _EXACT_MATRIX, rank=2),
        *_rows("float", "needs", _JUMPS),
        *_rows("any", "needs", _COMPARE),
        *_rows("any", "needs", _POSITION, rank=1),
        *_rows("any", "needs", _PAIRS, rank=1, results=2),
        *_rows("int", "keeps", _INT),
        *_rows("bool", "keeps", _BOOL),
        *_rows("bool", "keeps", _BOOL_ALONG, rank=1),
    )
