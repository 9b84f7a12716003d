"""Capture: names, nesting, aliasing, writes, laziness, refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from emmy_eq import torch_ir
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.lower import lower
from emmy_eq.torch_ir import capture, capture_code
from tests.capture_check import assert_matches_eager, interpret, returned


def test_inputs_are_named_after_variables_and_parameters_are_constants() -> None:
    program = capture_code("x = torch.randn(4, 3); a, b = torch.ones(2), torch.zeros(2); nn.Linear(3, 2)(x + torch.rand(3)) + a + b")
    assert [(i.name, i.constant) for i in program.inputs] == [
        ("x", False), ("a", False), ("b", False), ("x3", False), ("weight", True), ("bias", True),
    ]  # fmt: skip


def test_composites_stay_whole() -> None:
    program = capture(lambda x: F.gelu(F.layer_norm(x.softmax(-1), (4,))), (torch.randn(2, 4),))
    assert [n.op for n in program.nodes] == ["aten.softmax.int", "aten.layer_norm.default", "aten.gelu.default"]


def test_nested_results_and_list_arguments() -> None:
    def f(xs: list[Tensor], scale: float) -> dict[str, Any]:
        return {"sum": xs[0] + xs[1], "rest": (xs[0] * scale, scale)}

    args = ([torch.randn(3), torch.randn(3)], 2.0)
    program = capture(f, args)
    assert [i.name for i in program.inputs] == ["xs_0", "xs_1"]
    found, want = returned(program), f(*args)
    torch.testing.assert_close(found, want)
    assert program.bind(args)["xs_1"] is args[0][1]
    with pytest.raises(InvalidInput, match=r"3\.0 was given where 2\.0"):
        program.bind((args[0], 3.0))
    with pytest.raises(InvalidInput, match="was compiled for"):
        program.bind(([torch.randn(4), torch.randn(3)], 2.0))


def writes_a_view(x: Tensor) -> Tensor:
    x[:, 1:3] += 1
    x.t()[0].mul_(2)
    return x.sum(1)


def test_a_write_through_views_reaches_the_input() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    program = capture(writes_a_view, (x,))
    assert [(o.alias, o.returned) for o in program.outputs] == [(None, True), ("x", False)]
    result, written = interpret(program)
    mutated = x.clone()
    torch.testing.assert_close(result, writes_a_view(mutated))
    torch.testing.assert_close(written, mutated)


@pytest.mark.parametrize(
    "code",
    [
        "x[x > 4] = 2.0; x",
        "y = x.view(-1); y.detach()[1:].add_(1); y",
        "x.data.mul_(2); x + 1",
        "x[1] += 2; x[2, 2:] = T([3.0, 4.0]); x.copy_(x.flip(0)); x",
        "y = x * 2; y.relu_().clamp_(1, 5); y[:, 0].zero_(); y",
        "a, b = x.chunk(2, 1); b.add_(a); x",
        "x.index_add_(0, T([1, 1]), torch.ones(2, 4)); x",
        "x //= 3; x",
    ],
)
def test_in_place_programs_leave_what_eager_leaves(code: str) -> None:
    setup = "x = torch.arange(12.0).reshape(3, 4) + 0"
    space = {"torch": torch, "T": torch.tensor}
    *statements, last = code.split("; ")
    exec("\n".join((setup, *statements)), space)
    torch.testing.assert_close(returned(capture_code(f"{setup}; {code}")), eval(last, space))


def test_views_made_before_a_write_see_it() -> None:
    def f(x: Tensor) -> Tensor:
        y = x + 0
        flat, row = y.view(-1), y[1]
        flat[4] = 9.0
        return row * 2

    x = torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(returned(capture(f, (x,))), f(x))


@pytest.mark.parametrize(
    ("f", "alias"),
    [
        (lambda x: x, "x"),
        (lambda x: x.add_(1), "x"),
        (lambda x: x.contiguous(), "x"),
        (lambda x: x * 1, None),
        (lambda x: x.view(-1), None),
        (lambda x: x.clone(), None),
    ],
)
def test_an_output_is_an_input_only_where_the_source_returned_it(f: Any, alias: str | None) -> None:
    program = capture(f, (torch.ones(2, 2),))
    assert [o.alias for o in program.outputs] == [alias]
    assert [o.alias for o in lower(program).outputs] == [alias]


def test_large_inputs_are_made_when_asked_for() -> None:
    program = capture_code("torch.randn(1 << 20, 1 << 20).sum()")  # 4 TiB
    assert program.inputs[0].shape == (1 << 20, 1 << 20)


def test_example_values_are_the_same_every_time() -> None:
    one, two = (capture_code("nn.Linear(3, 3)(torch.randn(2, 3))") for _ in range(2))
    torch.testing.assert_close(one.examples(), two.examples(), rtol=0, atol=0)


def test_literals_keep_their_data() -> None:
    def f(x: Tensor) -> Any:
        return x[[1, 0]], x * torch.tensor([2.0, 3.0], device=x.device), x + x.new_tensor([1.0, 2.0]), x * torch.tensor(0.5)

    x = torch.tensor([5.0, 7.0])
    program = capture(f, (x,))
    torch.testing.assert_close(returned(program), f(x))
    assert len([i for i in program.inputs if i.constant]) == 3, "a 0-dim literal is a constant of the code, not an input"


def test_positions_are_the_users_lines() -> None:
    program = capture(writes_a_view, (torch.ones(3, 4),))
    assert all("test_capture.py" in n.source and n.source.endswith("in writes_a_view") for n in program.nodes)
    assert capture_code("x = torch.ones(2)\nx + 1").nodes[0].source == "line 2 of the code"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("F.scaled_dot_product_attention(*[torch.ones(1, 1, 2, 2)] * 3, dropout_p=0.5)", r"dropout_p=0\.5"),
        ("F.dropout(torch.ones(3))", "random values"),
        ("torch.ones(3) + torch.ones(3).sum().item()", "depends on a tensor's data"),
        ("x = torch.ones(3); x[x > 0]", "shape depends on data"),
        ("torch.ones(3).histc(2)", "no lowering"),
        ("x = torch.ones(6); x.unfold(0, 3, 1).add_(1); x", "overlapping view"),
        ("torch.ones(1).expand(3).add_(1)", "overlapping view"),
        ("torch.fft.fft(torch.ones(4))", "fft"),
        ("F.pad(torch.ones(1, 2, 4), (1, 1), 'nonsense')", "nonsense|Unrecognised"),
        ("nn.BatchNorm1d(3)(torch.ones(2, 3))", "training=True"),
        ("torch.ones(3) * torch.tensor(torch.ones(3).tolist())", "depends on a tensor's data"),
        ("x = torch.ones(2, 2) * 3; y = x.view(-1); x.t_(); y", r"t_ of shape \(2, 2\).* strides"),
        ("x = torch.ones(2, 2)\nwith torch.autocast('cpu', torch.bfloat16):\n    y = x @ x\ny", "autocast.* line 3"),
    ],
)
def test_refused_by_name(code: str, message: str) -> None:
    with pytest.raises((Unsupported, InvalidInput), match=message):
        lower(capture_code(code))


@pytest.mark.parametrize(
    "code", ["", "x = torch.ones(2)", "1 +", "torch.ones(2, 3) @ torch.ones(2, 3)", "undefined + 1", "torch.ones(2).reshape(3)"]
)
def test_bad_code_is_invalid_input(code: str) -> None:
    with pytest.raises(InvalidInput) as error:
        capture_code(code)
    assert error.value.exit_code == 2


def test_training_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"call \.eval\(\)"):
        capture(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), (torch.ones(1, 2),))


def test_torch_ir_runs_eager_and_prints_composites_on_one_line() -> None:
    program = capture_code("x = torch.randn(2, 3); x.softmax(-1)")
    assert torch_ir.show(program).splitlines()[1] == "softmax: f32[2,3] = aten.softmax.int(self=x, dim=-1)  # line 1 of the code"
    torch.testing.assert_close(torch_ir.run(program)[0], program.examples()["x"].softmax(-1))


def test_capture_and_lowering_do_not_import_dynamo() -> None:
    """They and sympy would add 2 s to each cold compile."""
    code = (
        "import sys; from emmy_eq.torch_ir import capture_code; from emmy_eq.lower import lower;"
        "lower(capture_code('nn.RMSNorm(64)(torch.randn(2, 64)).softmax(-1) @ torch.randn(64, 3)'));"
        "print([m for m in ('torch._dynamo', 'sympy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


class Block(nn.Module):
    """A decoder block: RMSNorm, grouped-query attention with rotary embedding, SwiGLU."""

    def __init__(self, width: int, heads: int, shared: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, shared * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        y = self.norm1(x)

        def split(t: Tensor, heads: int) -> Tensor:
            return t.view(batch, length, heads, self.size).transpose(1, 2)

        def rotate(t: Tensor) -> Tensor:
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat((-b, a), -1) * sin

        q, k, v = rotate(split(self.q(y), self.heads)), rotate(split(self.k(y), self.shared)), split(self.v(y), self.shared)
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm2(x)
        out: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoder_block(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    block = Block(64, 8, 2, 96).to(dtype)
    args = torch.randn(1, 16, 64).to(dtype), torch.randn(16, 8).to(dtype), torch.randn(16, 8).to(dtype)
    program = capture(block, args)
    assert {n.op for n in program.nodes} >= {"aten.rms_norm.default", "aten.scaled_dot_product_attention.default", "aten.silu.default"}
    assert_matches_eager(program)
