"""``make demo``: attention written in PyTorch becomes a one-pass kernel that the e-graph found, run and checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

CODE = """\
q = torch.randn(2, 32, 16)
k = torch.randn(2, 48, 16)
v = torch.randn(2, 48, 16)
scores = (q @ k.transpose(-1, -2)) * 0.25
torch.softmax(scores, -1) @ v"""


def main() -> int:
    say("Attention as two matmuls and a softmax, in plain PyTorch:")
    show(CODE)

    say("Importing torch ...")
    start = time.perf_counter()
    from emmy_eq import report
    from emmy_eq.codegen import nvrtc
    from emmy_eq.execute import run_example
    from emmy_eq.pipeline import Compiled, Options
    from emmy_eq.torch_ir import capture_code

    done(start)

    def compiled(place: Mapping[str, str] | str = "auto") -> Compiled:
        return Compiled(lambda: capture_code(CODE), Options(place=place))

    say("Tensor IR: five node kinds, every operation a tensor of its own.")
    program = compiled()
    show(program.show("tensor"))

    say("All of it goes into one e-graph, with rules of algebra that make equal what is equal:")
    show(program.show("egraph"))

    say("The search over what to store finds one kernel.  It reads each key once: a running maximum rescales the sums (softmax twist).")
    show(program.show("loop"))
    say("The same e-graph holds the textbook form: --place mul=cut,softmax=cut stores scores and probabilities.")
    textbook = compiled({"mul": "cut", "softmax": "cut"})
    show(textbook.show("loop"))

    say("The kernel as a tree of folds under a schedule row (Tile IR), as hardware operations (Kernel IR), as CUDA:")
    for ir in ("tile", "kernel", "cuda"):
        show(program.show(ir), lines=14)

    say("NVRTC compiles the CUDA for the target, with no GPU:")
    if nvrtc.available():
        for kernel, text in zip(program.kernel_ir, program.cuda, strict=True):
            size = len(nvrtc.compile_cubin(text, program.target.arch))
            print(f"   {kernel.name}: a cubin of {size} bytes for {program.target}")
    else:
        print("   skipped: NVRTC is not installed")

    say("Running it on the simulator: every block and thread, shared memory poisoned, races reported ...")
    start = time.perf_counter()
    outcome = run_example(program, "sim", check=True)
    done(start)
    show(report.outcome(outcome))
    stages = [f"{name} {1000 * seconds:.1f}" for name, seconds in program.seconds.items() if name != "import_torch"]
    say("Milliseconds by stage: " + ", ".join(stages))
    return 0 if outcome.passed else 1


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def done(start: float) -> None:
    print(f"   {time.perf_counter() - start:.1f} s", flush=True)


def show(text: str, lines: int | None = None) -> None:
    """Indented, and cut after ``lines``."""
    rows = text.splitlines()
    for row in rows[:lines]:
        print(f"   {row}".rstrip())
    if lines is not None and len(rows) > lines:
        print(f"   ... {len(rows) - lines} more lines")


if __name__ == "__main__":
    sys.exit(main())
