"""The tutorial's programs end to end: what the command line prints of them, and what their kernels compute."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import emmy_eq
from emmy_eq import cli
from emmy_eq.codegen import nvrtc
from emmy_eq.execute import run_example
from emmy_eq.extract.climb import Search
from emmy_eq.pipeline import VIEWS, Compiled, Options
from emmy_eq.torch_ir import capture_code

ROOT = Path(__file__).parent.parent
ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in json.loads((ROOT / "tests/data/tutorial.json").read_text())}

# Extents that the simulator can walk in a second; the ratios that decide a schedule's shape (ragged tiles, several steps) stay.
SMALLER = {"18944": "592", "4096": "96", "3584": "112", "2304": "72", "2048": "64", "512": "24", "128": "40", "28": "3"}


def output(*words: str) -> str:
    """What a command prints; it must succeed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(words) == 0
    return out.getvalue()


@cache
def compiled(name: str, place: str = "auto", target: str = "sm_90a") -> Compiled:
    return Compiled(lambda: capture_code(ROWS[name]["code"]), Options(target=target, place=place))


@cache
def record(name: str, *options: str) -> Any:
    return json.loads(output("compile", "-c", ROWS[name]["code"], "--json", *options))


def counts() -> list[tuple[str, tuple[str, ...], int]]:
    """(row, options, number of kernels) of each count that the table states."""
    found = []
    for name, row in ROWS.items():
        stated = row.get("kernels", {})
        by_options = stated if isinstance(stated, dict) else {"": stated}
        found += [(name, tuple(options.split()), n) for options, n in by_options.items()]
    return found


@pytest.mark.parametrize(("name", "options", "kernels"), counts())
def test_kernel_count(name: str, options: tuple[str, ...], kernels: int) -> None:
    assert len(record(name, *options)["kernels"]) == kernels


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "loop_ops" in row])
def test_loop_ops(name: str) -> None:
    (kernel,) = record(name)["kernels"]
    assert kernel["loop_ops"] == ROWS[name]["loop_ops"]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "same_identity_as" in row])
def test_equivalent_spellings_have_one_identity(name: str) -> None:
    identities = [[k["identity"] for k in record(n)["kernels"]] for n in (name, ROWS[name]["same_identity_as"])]
    assert identities[0] == identities[1]


def test_rmsnorm_reads_each_element_once() -> None:
    """2048 x 32 floats in, as many out, and the weight: nothing is read from DRAM twice."""
    (kernel,) = record("rmsnorm")["kernels"]
    assert kernel["bytes"] == 4 * (2 * 32 * 2048 + 2048)


def test_attention_is_one_pass_and_three_passes_can_be_shown() -> None:
    text = output("compile", "-c", ROWS["attention"]["code"], "--ir", "loop")
    assert text.count("twist softmax") == 1
    assert text.count("load k[") == 1
    three = output("compile", "-c", ROWS["attention"]["code"], "--ir", "loop", "--place", "sdpa_exp=cut,sdpa_max=cut")
    assert "sdpa_max: f32[16], sdpa_exp: f32[16,16]" in three
    assert "twist softmax" not in three
    assert "= max(" in three
    divided = output("compile", "-c", ROWS["attention"]["code"], "--ir", "loop", "--place", "sdpa_div=cut")
    assert divided.count("load sdpa_div[") == 1


@pytest.mark.parametrize("name", ["attention", "softmax", "norm_linear", "matmul_chain"])
def test_every_pin_is_honoured(name: str) -> None:
    program = compiled(name)
    buffers = Search(program.egraph, program.target).names
    for c, buffer in buffers.items():
        if c in program.egraph.roots:
            continue
        cut = program.placed({buffer: "cut"}).loop_ir
        assert any(buffer == b.name for b in cut.temps)
        assert any(buffer == b.name for k in cut.kernels for b in k.inputs)
        assert all(buffer != b.name for b in program.placed({buffer: "fuse"}).loop_ir.temps)


def test_pins_that_no_plan_honours_are_refused() -> None:
    """A quotient times v is summed, or a sum is divided: what the one stores has no place in the other."""
    with pytest.raises(emmy_eq.InvalidInput, match="place sdpa_mul_2=cut,sum=cut: no plan of kernels"):
        compiled("attention").placed({"sdpa_mul_2": "cut", "sum": "cut"}).loop_ir  # noqa: B018
    with pytest.raises(emmy_eq.InvalidInput, match="another name of the same value"):
        emmy_eq.compile(lambda x, y: (x * y).exp() + y * x, (torch.ones(8), torch.ones(8)), place={"mul": "cut", "mul_1": "fuse"})


def test_what_place_takes_is_what_the_egraph_lists() -> None:
    chain = compiled("two_matmuls")
    with pytest.raises(emmy_eq.InvalidInput) as caught:
        chain.placed({"out0": "cut"}).loop_ir  # noqa: B018
    *_, names = str(caught.value).rstrip(".").partition("the seams are ")
    listed = [line.split()[0] for line in chain.show("egraph").partition("seam ")[2].splitlines()[2:] if "  " in line]
    made = chain.show("egraph").partition("made by rules, and pinned by --place as seams are: ")[2]
    assert names.split(", ") == [*listed, *made.split(", ")]
    assert made == "sum"


def test_matmul_chain_is_reassociated() -> None:
    """a (x c) takes 2 * 2 * 4096 * 64 * 64 = 67 MFLOP; (a x) c would take 4.3 GFLOP."""
    assert sum(k["flops"] for k in record("matmul_chain")["kernels"]) <= 1.01 * 4 * 4096 * 64 * 64


def test_row_scale_leaves_the_matmul() -> None:
    """One kernel computes statistics and product, or the scale is an epilogue; or the row is stored once, for warpgroups, which take it as
    it lies in memory where the weight lies across."""
    kernels = record("norm_linear")["kernels"]
    normalized = 4 * 128 * 2048
    minimum = 4 * (128 * 2048 + 2048 + 2048 * 2048 + 128 * 2048)
    assert sum(k["bytes"] for k in kernels) <= minimum + 2 * normalized


def test_linear_and_dense_differ_by_the_weights_index_map() -> None:
    def nodes(name: str) -> list[str]:
        lines = output("compile", "-c", ROWS[name]["code"], "--ir", "tensor").splitlines()
        computed = [line.split("  #")[0] for line in lines if " = mul" in line or "reduce" in line]
        return [re.sub(r"\b(linear|matmul)\w*", "", line) for line in computed]

    assert nodes("linear") == nodes("dense")


@pytest.mark.parametrize("name", ROWS)
def test_all_views_print(name: str) -> None:
    program = compiled(name)
    texts = {view: program.show(view) for view in VIEWS}
    assert all(texts.values())
    assert len(set(texts.values())) == len(VIEWS)


@pytest.mark.parametrize("place", ["auto", "fuse", "cut"])
@pytest.mark.parametrize("name", ROWS)
def test_simulator_agrees_with_float64(name: str, place: str) -> None:
    code = re.sub(r"\d+", lambda n: SMALLER.get(n[0], n[0]), ROWS[name]["code"])
    program = Compiled(lambda: capture_code(code), Options(place=place))
    outcome = run_example(program, "sim", check=True)
    assert outcome.passed, outcome.outputs


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("name", ROWS)
def test_nvrtc_accepts_the_cuda(name: str, target: str) -> None:
    program = compiled(name, target=target)
    for text in program.cuda:
        assert nvrtc.compile_cubin(text, program.target.arch)


def test_cuda_text_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import json, sys\n"
        "from emmy_eq.pipeline import Compiled, Options\n"
        "from emmy_eq.torch_ir import capture_code\n"
        "for code in json.load(sys.stdin):\n"
        "    for place in ('auto', 'cut'):\n"
        "        print(*Compiled(lambda: capture_code(code), Options(place=place)).cuda)\n"
    )
    codes = json.dumps([ROWS[name]["code"] for name in ("rmsnorm", "attention", "bias_matmul_relu", "norm_linear")])
    texts = [
        subprocess.run(
            [sys.executable, "-c", script],
            input=codes, capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert "__global__" in texts[0]
    assert texts[0] == texts[1]


def test_python_api_runs_and_keeps_structure(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(6, 8)
    program = emmy_eq.compile(lambda t: {"double": t + t, "rows": [t.sum(1)]}, (x,))
    found = program(x)
    torch.testing.assert_close(found, {"double": x + x, "rows": [x.sum(1)]})
    other = torch.randn(6, 8)
    torch.testing.assert_close(program(other)["double"], other + other)
    assert capsys.readouterr().err.count("simulator") <= 1  # said once a process
    assert "e-graph" in program.explain()
    assert {"torch_ir", "egraph", "plan"} <= program.seconds.keys()


def test_other_shapes_are_refused() -> None:
    program = emmy_eq.compile(torch.exp, (torch.randn(4),))
    with pytest.raises(emmy_eq.InvalidInput, match="was compiled for"):
        program(torch.randn(5))


def test_stages_are_lazy_and_computed_once() -> None:
    program = Compiled(lambda: capture_code("torch.randn(8).exp()"), Options())
    assert program.seconds == {}
    assert program.loop_ir is program.loop_ir
    assert "kernel_ir" not in program.seconds
    assert program.cuda
    assert "kernel_ir" in program.seconds


@pytest.mark.parametrize(
    "code",
    [
        "torch.randn(0, 4) + 1",
        "torch.randn(4, 0).sum(1)",
        "torch.randn(0, 3) @ torch.randn(3, 2)",
        "torch.randn(2, 0) @ torch.randn(0, 3)",
        "torch.softmax(torch.randn(3, 0), -1)",
    ],
)
def test_empty_extents(code: str) -> None:
    outcome = run_example(Compiled(lambda: capture_code(code), Options()), "sim", check=True)
    assert outcome.passed, outcome.outputs


def test_input_as_output_is_a_copy_and_in_place_writes_show() -> None:
    x = torch.randn(4)
    same = emmy_eq.compile(lambda t: (t * 1, t.clone()), (x,))(x)
    assert all(torch.equal(y, x) and y.data_ptr() != x.data_ptr() for y in same)
    before = x.clone()
    written = emmy_eq.compile(lambda t: t.add_(1), (x,))(x)
    assert torch.equal(x, before + 1)
    assert written.data_ptr() == x.data_ptr()


def test_schedule_row_is_honoured_and_checked() -> None:
    code = "torch.randn(64, 64).exp()"
    default = Compiled(lambda: capture_code(code), Options())
    (kernel,) = default.loop_ir.kernels
    row = "WORK=t64 TILE=i0:t64 RASTER=row"
    (tile,) = Compiled(lambda: capture_code(code), Options(schedule=row)).tile_ir
    assert str(tile.schedule) == row
    (named,) = Compiled(lambda: capture_code(code), Options(schedule={kernel.name: row})).tile_ir
    assert named == tile
    with pytest.raises(emmy_eq.InvalidInput, match="there is no kernel 'nosuch'"):
        Compiled(lambda: capture_code(code), Options(schedule={"nosuch": row})).tile_ir  # noqa: B018
