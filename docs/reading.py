"""``python docs/reading.py``: the order in which to read the source, lines and their sum by part; ``-v``: every module and its purpose."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("emmy_eq", "rules", "extract", "codegen")

# Parts in order; a pattern ending in / is a folder, whose files come in the order of its own __init__ and names.
PARTS: dict[str, str] = {
    "the pipeline, top to bottom": "emmy_eq/__init__ emmy_eq/pipeline emmy_eq/stage emmy_eq/errors",
    "operations, index expressions, named arrays": "emmy_eq/ops emmy_eq/index emmy_eq/algebra emmy_eq/named emmy_eq/arrays",
    "PyTorch to Torch IR": "emmy_eq/torch_ir emmy_eq/capture/",
    "Torch IR to Tensor IR": "emmy_eq/tensor_ir/ emmy_eq/lower/ emmy_eq/strict emmy_eq/layers",
    "Tensor IR to terms": "emmy_eq/terms/ emmy_eq/axes/ emmy_eq/to_terms emmy_eq/positional emmy_eq/evaluate",
    "what a rule is": "emmy_eq/rule emmy_eq/mathematics emmy_eq/pattern emmy_eq/extensions emmy_eq/catalogue",
    "the rules": "rules/",
    "the e-graph": "emmy_eq/signature emmy_eq/encode emmy_eq/egraph emmy_eq/readback emmy_eq/fold emmy_eq/probe",
    "plans of kernels": "extract/targets extract/plan extract/egraph extract/body extract/climb extract/merge extract/cost extract/",
    "Loop IR": "emmy_eq/loop_ir/",
    "schedules and Tile IR": "codegen/schedule codegen/tile_ir codegen/families/",
    "Tile IR to Kernel IR": "codegen/kernel_ir/ codegen/lower/",
    "Kernel IR to CUDA, and its launch": "codegen/cuda/ codegen/nvrtc codegen/tensor_map codegen/runtime codegen/",
    "the simulator": "codegen/simulate/",
    "measured times": "extract/store/ codegen/tune/ emmy_eq/tuning emmy_eq/timing",
    "whether rules are true": "emmy_eq/verify/ emmy_eq/suggest",
    "random programs": "emmy_eq/testing/ emmy_eq/fuzz emmy_eq/pytest_plugin",
    "the explorer": "emmy_eq/explore/",
    "the cheapest DAG of any e-graph": "extract/dag/",
    "the command line and what it prints": "emmy_eq/cli emmy_eq/options emmy_eq/report emmy_eq/",
}


def parts() -> dict[str, list[Path]]:
    """The modules of each part in reading order; each module is in the first part that names it or its folder most closely."""
    patterns = {p for text in PARTS.values() for p in text.split()}
    taken: set[Path] = set()
    out: dict[str, list[Path]] = {}
    for part, text in PARTS.items():
        out[part] = []
        for pattern in text.split():
            found = [m for m in _modules(pattern) if m not in taken and _closest(m, patterns) == pattern]
            taken.update(found)
            out[part] += found
    return out


def _modules(pattern: str) -> Iterator[Path]:
    if not pattern.endswith("/"):
        yield ROOT / f"{pattern}.py"
        return
    yield from sorted(p for p in (ROOT / pattern).rglob("*.py") if not any(x.is_symlink() for x in p.parents if x != ROOT))


def _closest(module: Path, patterns: set[str]) -> str:
    name = module.relative_to(ROOT).with_suffix("").as_posix()
    return name if name in patterns else max((p for p in patterns if p.endswith("/") and name.startswith(p)), key=len)


def purpose(module: Path) -> str:
    """The first paragraph of its docstring."""
    return " ".join((ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n\n")[0].split())


def main(verbose: bool) -> None:
    total = 0
    for part, modules in parts().items():
        lines = {m: len(m.read_text().splitlines()) for m in modules}
        total += sum(lines.values())
        print(f"{sum(lines.values()):6} {total:6}  {part}")
        for m, n in lines.items() if verbose else ():
            print(f"{n:13}    {m.relative_to(ROOT)}: {purpose(m)}")


if __name__ == "__main__":
    main("-v" in sys.argv[1:])
