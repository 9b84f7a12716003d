"""Measures what a GPU reaches, with kernels of our own: each figure is that of a small program through the whole of code generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median

import torch

from emmy_eq import timing
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.tune.device import executable
from emmy_eq.codegen.tune.software import version
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.calibration import Calibration
from emmy_eq.extract.targets import Target, target, targets
from emmy_eq.loop_ir import Kernel, parse
from emmy_eq.ops import ops
from emmy_eq.text import quantity
from emmy_eq.torch_ir import torch_dtype

CHAIN = 192  # operations on one element, so that its load and store matter little
LARGE, SMALL = 1 << 28, 1 << 21  # f32: more than an L2 cache holds, and less, with the copy
CHAINS = 1 << 24  # elements that chains run on
EDGE = 4096  # of a product's square matrices
LAUNCHES = 200  # calls in a row


def present() -> Target:
    """The record of the current CUDA device: its name is in the device's, else its architecture fits."""
    name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    named = [t.name for t in targets().values() if t.name.removeprefix("RTX") in name]
    fitting = [t.name for t in targets().values() if t.arch.rstrip("a") == f"sm_{major}{minor}"]
    if not named and not fitting:
        raise InvalidInput("targets calibrate", f"there is no record for {name} (sm_{major}{minor})")
    return target((named or fitting)[0])


def calibrate(on: Target, say: Callable[[str], None]) -> Calibration:
    """What the current CUDA device sustains; ``say`` is told of each figure."""

    empty = _run(copy(1), on)
    launch, host = median(timing.hot(empty)) * 1e-6, _called(empty)
    say(f"an empty kernel: {launch * 1e6:.2f} us in a graph, {host * 1e6:.2f} us called")

    def rate(work: float, kernel: Kernel, what: str) -> float:
        took = median(timing.hot(_run(kernel, on))) * 1e-6 - launch
        say(f"{what}: {took * 1e6:.1f} us, {quantity(work / took)} a second")
        return work / took

    sustained = {
        "DRAM": rate(2.0 * 4 * LARGE, copy(LARGE), f"copy of {LARGE >> 18} MiB"),
        "L2": rate(2.0 * 4 * SMALL, copy(SMALL), f"copy of {SMALL >> 18} MiB"),
        "fma": rate(2.0 * CHAIN * CHAINS, chain("fma", CHAINS), "fma"),
        "exp2": rate(1.0 * CHAIN * CHAINS, chain("exp2", CHAINS), "exp2"),
        **{t: rate(2.0 * EDGE**3, product(EDGE, t), f"product of {t}") for t in ("f32", "f16", "bf16")},
    }
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(on.name, torch.cuda.get_device_name(), sustained, launch, host, now, version())


def _run(kernel: Kernel, on: Target) -> Callable[[], object]:
    """``kernel`` under its default row, on values between 0 and 1."""
    run = executable(kernel, schedules(kernel, on)[0], on)
    inputs = [torch.rand(b.shape, device="cuda").to(torch_dtype(b.dtype)) for b in kernel.inputs]
    return lambda: run(*inputs)


def _called(run: Callable[[], object]) -> float:
    """Seconds of a call outside of a graph, among calls in a row."""
    run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / LAUNCHES


def copy(n: int) -> Kernel:
    return parse(
        f"""
kernel copy(a: f32[{n}]) -> out: f32[{n}]:
  loop i0 < {n}:
    v0 = load a[i0]
    store out[i0] = v0
""",
        Kernel,
    )


def chain(op: str, n: int) -> Kernel:
    """``CHAIN`` times ``op`` on each element: of the last value and constants that keep it finite."""
    arguments = ["", ", c0", ", c0, c1"][ops()[op].arity - 1]
    steps = "".join(f"    v{i + 1} = {op} v{i}{arguments}\n" for i in range(CHAIN))
    return parse(
        f"""
kernel {op}(a: f32[{n}]) -> out: f32[{n}]:
  c0 = lit f32 0.5
  c1 = lit f32 0.25
  loop i0 < {n}:
    v0 = load a[i0]
{steps}    store out[i0] = v{CHAIN}
""",
        Kernel,
    )


def product(n: int, dtype: str) -> Kernel:
    """Square matrices; values of 16 bits are summed in f32."""
    a, b, total = ("v2", "v3", "v6") if dtype != "f32" else ("v0", "v1", "v5")
    casts = "      v2 = cast f32 v0\n      v3 = cast f32 v1\n" if dtype != "f32" else ""
    back = f"    v6 = cast {dtype} v5\n" if dtype != "f32" else ""
    return parse(
        f"""
kernel product(a: {dtype}[{n},{n}], b: {dtype}[{n},{n}]) -> out: {dtype}[{n},{n}]:
  loop i0 < {n}, i1 < {n}:
    fold i2 < {n}:
      v0 = load a[i0, i2]
      v1 = load b[i2, i1]
{casts}      v4 = mul {a}, {b}
      carry v5 = sum(v4)
{back}    store out[i0, i1] = {total}
""",
        Kernel,
    )
