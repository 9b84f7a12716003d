"""``python -m bench.stages``: seconds of every stage to CUDA text, in a process of its own each: RMSNorm, a Llama block, twelve of them.

The best of some runs by the time that the process had, so that a loaded machine says little less than a quiet one; needs no GPU.
``imports``: loading the compiler's own modules, egglog and the rules, which a process does once, before the first compile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib import import_module

import torch
from torch import Tensor, nn

from bench import ended
from bench.models import DecoderBlock
from bench.workloads import In, Workload, select
from emmy_eq import stage
from emmy_eq.egraph import bindings
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.text import table
from emmy_eq.torch_ir import capture


class Layers(nn.Module):
    """Decoder blocks one after the other, parameters of their own each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(2048, 32, 4, 5632) for _ in range(count))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, cos, sin)
        return x


def layers(count: int) -> Workload:
    return Workload(f"llama_block_x{count}", lambda: Layers(count), (In((1, 128, 2048)), In((128, 64)), In((128, 64))))


CASES = {"rmsnorm": select(["rmsnorm_f32_32x2048"])[0], "block": layers(1), "12 blocks": layers(12)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stages", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--one", choices=CASES, help="one run in this process, as JSON")
    options = parser.parse_args(argv)
    if options.one is not None:
        print(json.dumps(run(CASES[options.one])))
        return 0
    best = [min((fresh(case) for _ in range(options.runs)), key=lambda r: r["in all but imports"]) for case in CASES]
    print(table(["stage", *CASES], [[stage, *(f"{r[stage]:.3f}" for r in best)] for stage in best[0]]))
    return 0


def fresh(case: str) -> dict[str, float]:
    """`run` in a new process."""
    done = subprocess.run([sys.executable, "-m", "bench.stages", "--one", case], check=True, capture_output=True, text=True)
    return {name: float(x) for name, x in json.loads(done.stdout).items()}


MODULES = """
    capture lower strict layers to_terms egraph readback fold extensions rules extract.joined extract.loops
    codegen.stored codegen.families codegen.lower codegen.cuda
""".split()
STAGES = ("torch_ir", "tensor_ir", "layers", "terms", "egraph", "plan", "loop_ir", "tile_ir", "kernel_ir", "cuda")


def run(workload: Workload) -> dict[str, float]:
    """Process seconds by stage, and in all but imports; the import of torch is not among them."""
    start = time.process_time()
    for name in MODULES:
        import_module(f"emmy_eq.{name}")
    model, inputs = workload.skeleton(), tuple(spec.blank() for spec in workload.inputs)
    program = Compiled(lambda: capture(model, inputs), Options())
    assert program.import_torch is torch
    assert program.rules
    assert bindings()
    imports = time.process_time() - start
    stage.clock = time.process_time
    assert program.cuda
    spent = {name: program.seconds.get(name, 0.0) for name in STAGES}
    return {"imports": imports} | spent | {"in all but imports": sum(spent.values())}


if __name__ == "__main__":
    sys.exit(ended(main))
