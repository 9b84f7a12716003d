"""Random programs through every stage, what the fuzzer found before, and the fuzzer itself on a compiler with a planted fault."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from emmy_eq import ops
from emmy_eq.errors import InvalidInput
from emmy_eq.fuzz import Fuzzer, fuzz
from emmy_eq.testing import Source, programs
from emmy_eq.testing.sources import Given
from emmy_eq.testing.stages import Checked, check_program

slow = settings(suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))


@pytest.mark.filterwarnings("ignore")  # torch warns of some of the programs that are drawn
@settings(slow, max_examples=25)
@given(programs(steps=6))
def test_finite_programs(source: Source) -> None:
    check_program(source.function(), source.tensors())


@pytest.mark.filterwarnings("ignore")
@settings(slow, max_examples=10)
@given(programs(steps=6, special=True))
def test_programs_with_special_values(source: Source) -> None:
    for accuracy in ("strict", "default"):
        check_program(source.function(), source.tensors(), special=True, accuracy=accuracy)


# Why it was wrong once, the body, the inputs.
FOUND: dict[str, tuple[str, tuple[Given, ...]]] = {
    "the audit compared literals by its keyed order": ("torch.exp(x0.clamp(max=4))", (Given((5, 1, 0, 0), "bf16", "normal", 0),)),
    "the audit hashed literals that are cast to integers": ("x0.to(torch.int64)", (Given((0,), "f64", "whole", 6),)),
    "a staged twist added to its key, where key and folded axis shared threads": (
        "torch.logsumexp(x0 - x0.amax(1, keepdim=True), (0,))",
        (Given((65, 2, 1), "f64", "normal", 4),),
    ),
    "a fold over an axis along which the scan in it varies was put behind the scan": (
        "x0.cumsum(2).amax(1)",
        (Given((5, 2, 8), "f32", "normal", 0),),
    ),
    "blocks along another result's axis all wrote the scalar": (
        "(x0.sum(), x0[:, 1:].exp())",
        (Given((13, 31), "f32", "normal", 0),),
    ),
    "a merged kernel's renamed axis kept its old name where a fold bound it": (
        "(torch.take_along_dim(x0, x0.argsort(0), 0), F.layer_norm(x0, (2,)))",
        (Given((2,), "f32", "normal", 0),),
    ),
    "the padding of a staged fold was not zero, and infinity times zero is NaN": (
        "x0 @ x1 @ x2",
        (Given((7, 6), "f32", "special", 1), Given((6, 3), "f32", "whole", 8), Given((3, 4), "f32", "whole", 2)),
    ),
    "a constant was read back from a result without elements": (
        "(torch.exp(x0.clamp(max=4)), F.silu(x0))",
        (Given((0,), "f32", "normal", 0),),
    ),
    "the order of a float sum was NumPy's, which goes by the strides of its operand": (
        "torch.softmax(x0 @ x0.mT, -1) @ x0",
        (Given((8, 17), "f32", "special", 0),),
    ),
    "sixteen bools were one access": ("x0.all()", (Given((4, 4), "bool", "whole", 0),)),
    "the audit took the root of a square for one of its operand's signs modulo each prime": (
        "F.normalize(x0 + 3, dim=0)",
        (Given((1,), "f32", "normal", 0),),
    ),
    "eager's fused attention, the oracle, gave 0 for a row of NaN": (
        "F.scaled_dot_product_attention(x0, x1, x2, is_causal=True)",
        (Given((8, 24, 1, 1), "f32", "whole", 6), Given((8, 24, 1, 1), "f32", "special", 5), Given((8, 24, 1, 1), "f32", "whole", 8)),
    ),
    "one value that is several results of a merged kernel was extracted before its operands": (
        "(x0.mean(0), x0.mean(0), torch.exp(x0.mean(0).clamp(max=4)))",
        (Given((7,), "f32", "normal", 0),),
    ),
    "a contraction brought early the operands of folds within folds of its own": (
        "torch.exp(F.rms_norm(x1.logsumexp(3) - x1.mean(3), (7,))).mT @ x0",
        (Given((7, 2), "f32", "normal", 0), Given((1, 7, 7, 3), "f32", "normal", 0)),
    ),
    "a gather from what has no dims any more had no bound": (
        "x0.sum((1, 2)).index_select(0, x1).sum(0)",
        (Given((2, 0, 0), "bool", "whole", 0), Given((1,), "i64", "below 2", 0)),
    ),
    "a merged kernel shared a pass over what its own first half made, and no longer stored": (
        "(lambda y: (F.relu(y), y.var(0, correction=0).softmax(0).amax(0)))(x0 @ x1 + (x0 @ x2) @ x3)",
        tuple(Given(shape, "f32", "normal", 6) for shape in ((1, 8), (8, 2), (8, 1), (1, 2))),
    ),
    "the audit knew logarithms, and not their approximations, for hashes": (
        "torch.log(torch.exp((x1 @ x0).clamp(max=4)).cumsum(0))",
        (Given((4, 1), "f32", "whole", 1), Given((4,), "f32", "normal", 0)),
    ),
    "a gather through a view had coordinates beyond the bound that its lowering assumed": (
        "x0.repeat_interleave(4, 0).reshape(4, 4, 1).transpose(0, 1).reshape(16, 1)[x1]",
        (Given((4, 1), "f32", "normal", 0), Given((9,), "i64", "below 16", 1)),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str) -> None:
    text, inputs = FOUND[name]
    source = Source(inputs, (("y0", text),), ("*y0" if text[0] == "(" else "y0",))
    special = any(x.kind == "special" for x in inputs)
    for key in range(4):  # the targets
        accuracy = "strict" if special else ("default", "fast")[key % 2]
        check_program(source.function(), source.tensors(), special=special, accuracy=accuracy, key=key)


@pytest.mark.filterwarnings("ignore")
def test_a_planted_fault_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A product that is off by a hundredth: the reproducer is hardly more than that, and the corpus runs it again."""
    row = ops.ops()["mul"]
    monkeypatch.setitem(ops.ops(), "mul", replace(row, numpy=lambda a, b: np.multiply(a, b) + 0.01 if a.dtype.kind == "f" else a * b))
    fuzzer = Fuzzer(math.inf, lambda text: None, tmp_path)
    fuzzer.batch(5, special=False)
    assert "Tensor IR against eager" in fuzzer.known
    (path,) = tmp_path.glob("*.py")
    assert path.read_text().count("    y") <= 2
    again = Fuzzer(math.inf, lambda text: None, tmp_path)
    again.replay(path)
    assert again.known.keys() == fuzzer.known.keys()
    monkeypatch.setitem(ops.ops(), "mul", row)
    mended = Fuzzer(math.inf, lambda text: None, tmp_path)
    mended.replay(path)
    assert mended.count == 1
    assert not mended.known


def swallows(*_: Any, **__: Any) -> Checked:
    try:
        while True:
            pass
    except Exception:
        return Checked()


def native(*_: Any, **__: Any) -> Checked:
    deque(repeat(0), maxlen=0)  # C code that looks at no signal
    return Checked()


def crashes(*_: Any, **__: Any) -> Checked:
    os._exit(3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (swallows, "Overtime in swallows (test_fuzz.py)"),
        (native, "the process died of SIGXCPU"),
        (crashes, "the process ended with code 3"),
    ],
)
def test_a_program_that_does_not_end_or_takes_its_process_with_it_is_kept(
    check: Callable[..., Checked], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("emmy_eq.fuzz.check_program", check)
    monkeypatch.setattr("emmy_eq.fuzz.PATIENCE", 0.1)
    fuzzer = Fuzzer(time.monotonic() + 60, lambda text: None, tmp_path)
    fuzzer.apart(partial(fuzzer.batch, 0, special=False))
    assert fuzzer.known.keys() == {kind}
    assert "def program" in fuzzer.known[kind].program
    (path,) = tmp_path.glob("*.py")
    assert path.read_text() == fuzzer.known[kind].program
    monkeypatch.setattr("emmy_eq.fuzz.check_program", lambda *_, **__: Checked(rows=1))
    mended = Fuzzer(time.monotonic() + 60, lambda text: None, tmp_path)
    mended.apart(partial(mended.replay, path))
    assert (mended.rows, mended.count, mended.known) == (1, 1, {})


def test_the_command_ends_in_time_and_says_what_it_did() -> None:
    said: list[str] = []
    assert fuzz(0.0, 7, None, said.append) == 0
    assert said == ["seed 7: 0 programs, 0 runs on the simulator, 0 failures"]


def test_a_time_or_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="--minutes -1: it is at least 0"):
        fuzz(-1.0)
    with pytest.raises(InvalidInput, match="--corpus"):
        fuzz(0.0, corpus=tmp_path / "file")
