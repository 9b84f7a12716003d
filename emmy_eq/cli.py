"""The command line, ``emmy-eq COMMAND``.

Every command is a function from parsed options to an exit code.  Heavy modules are imported where they are used, so that
``--help`` and a mistyped option answer at once.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from emmy_eq import __version__, progress
from emmy_eq.errors import EmmyError, InvalidInput
from emmy_eq.options import compiled_from, rules_of, store_path

if TYPE_CHECKING:
    from emmy_eq.rule import Rule

BEGAN = time.perf_counter()
VIEWS = ("torch", "tensor", "egraph", "loop", "tile", "kernel", "cuda")  # as in emmy_eq.pipeline, which --help need not load


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 the program cannot be compiled or a check failed, 2 bad input, 3 there is no GPU."""
    words = sys.argv[1:] if argv is None else argv
    if not words:
        parser().print_help(sys.stderr)
        return 2
    options = parser().parse_args(words, argparse.Namespace(began=BEGAN if argv is None else None))
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `emmy-eq ... | head`: the flush at exit stays silent
        return 0
    except EmmyError as error:
        return failed(str(error), error.exit_code, options.debug)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        return failed(f"A fault of the compiler: {type(error).__name__}: {first} (--debug shows where).", 1, options.debug)


def failed(text: str, code: int, debug: bool) -> int:
    """One paragraph, or the traceback with it."""
    if debug:
        traceback.print_exc()
    print(f"emmy-eq: {text}", file=sys.stderr)
    return code


class Parser(argparse.ArgumentParser):
    """Refuses an option that its command does not have; argparse leaves it to the parser of all commands, which knows no option."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], options, 1)
            self.error(f"{unknown[0]} is not known here{f'; did you mean {near[0]}?' if near else ''}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="emmy-eq",
        description="An equality-saturation tensor compiler: PyTorch in, fused CUDA out.",
        epilog="example: emmy-eq compile -c 'torch.softmax(torch.randn(4, 8), -1)' --ir loop",
    )
    top.add_argument("--version", action="version", version=f"emmy_eq {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", help="a traceback with every error")

    program = Parser(add_help=False)
    program.add_argument("program", nargs="?", metavar="FILE.py:NAME", help="a function or module in a file; see --inputs")
    program.add_argument("-c", dest="code", metavar="CODE", help="an expression, or statements that end in one; torch, nn and F are there")
    program.add_argument("--inputs", metavar="EXPR", help="tuple of example inputs for FILE.py:NAME (default: example_inputs in the file)")
    program.add_argument("--target", default="sm_90a", help="sm_80, sm_89, sm_90a (default), sm_120, or a name from `emmy-eq targets`")
    program.add_argument("--accuracy", default="default", help="strict (no bit changes), default or fast")
    program.add_argument("--place", default="auto", help="auto (default), fuse, cut, or SEAM=fuse|cut,... (seams: --ir egraph, explore)")
    program.add_argument(
        "--schedule", metavar="ROW", action="append", help="for the one kernel, or 'KERNEL ROW' (repeatable; --ir tile prints those in use)"
    )
    program.add_argument("--search-seconds", type=float, default=60.0, metavar="S", help="take the best plan found by then (default: 60)")
    program.add_argument("--rules", metavar="FILE.py", action="append", default=[], help="rules of your own (repeatable)")
    program.add_argument("--json", action="store_true", help="machine-readable output")

    add = commands.add_parser
    compiling = add("compile", parents=[program, common], help="compile to CUDA and show what was found, or any IR")
    compiling.add_argument("--targets", metavar="A,B,...", help="the plans for several targets side by side, from one saturation")
    compiling.add_argument("--ir", choices=VIEWS, help="print this stage of the program only")
    compiling.add_argument("--explain-accuracy", action="store_true", help="rules that matched, and what each may change in the results")
    compiling.add_argument("-v", dest="verbose", action="count", default=0, help="rules that fired and seconds; -vv: rewrites as diffs")
    compiling.set_defaults(command=compile_command)

    running = add("run", parents=[program, common], help="compile and execute, on a GPU or the simulator")
    running.add_argument("--device", choices=("sim", "cuda"), help="default: cuda where there is a GPU, else the simulator")
    running.add_argument("--check", action="store_true", help="compare with float64; exit code 1 if it is off")
    running.add_argument("--bench", action="store_true", help="time eager, torch.compile and this (GPU)")
    running.set_defaults(command=run_command)

    exploring = add("explore", parents=[program, common], help="the front of plans, and what each cut trades")
    exploring.add_argument("--html", type=Path, metavar="FILE", help="write a page: plans, kernel graph, seams, IRs side by side")
    exploring.add_argument("--plot", type=Path, metavar="FILE.png", help="write a picture (needs the extra plot)")
    exploring.add_argument("--sweep", metavar="n=16,64,...", help="fuse against cut along one size of -c CODE, with the crossover")
    exploring.set_defaults(command=explore_command)

    extracting = add("extract", parents=[common], help="the cheapest DAG of a serialized e-graph (egraph-serialize JSON)")
    extracting.add_argument("file", metavar="FILE.json[.gz]")
    extracting.add_argument("--time", type=float, default=10.0, metavar="S", help="seconds, from the start of the process (default: 10)")
    extracting.add_argument("--json", action="store_true", help="machine-readable output")
    extracting.set_defaults(command=extract_command)

    ruling = add("rules", parents=[common], help="the rewrite rules")
    ruling.add_argument(
        "action", choices=("list", "show", "check", "suggest", "catalogue"),
        help="a line each; all about one; test; propose new ones for -c CODE; the text of docs/rules.md",
    )  # fmt: skip
    ruling.add_argument("name", nargs="?", help="one rule (show needs it)")
    ruling.add_argument("--accuracy", default="fast", help="rules that this accuracy admits (default: all)")
    ruling.add_argument("--json", action="store_true", help="machine-readable output")
    ruling.add_argument("--rules", metavar="FILE.py", action="append", default=[], help="a file's rules too; alone where no name is given")
    ruling.add_argument("-c", dest="code", metavar="CODE", help="suggest: rules that this program's values obey and that nothing derives")
    ruling.set_defaults(command=rules_command)

    explaining = add("explain", parents=[program, common], help="the rules that lead from the program to its kernels, step by step")
    explaining.set_defaults(command=explain_command)

    fuzzing = add("fuzz", parents=[common], help="random programs through every stage, each checked against the one above")
    fuzzing.add_argument("--minutes", type=float, default=1.0, metavar="N", help="when to stop (default: 1)")
    fuzzing.add_argument("--seed", type=int, default=0, metavar="S", help="of the first batch (default: 0)")
    fuzzing.add_argument("--corpus", type=Path, metavar="DIR", help="keeps what fails, and runs it first")
    fuzzing.set_defaults(command=fuzz_command)

    tuning = add("tune", parents=[program, common], help="measure schedule rows (GPU); later compiles take the best")
    tuning.add_argument("--rows", type=int, default=12, metavar="N", help="rows to look at for each kernel (default: 12)")
    tuning.add_argument("--plans", type=int, default=1, metavar="K", help="measure the K best plans by the model (default: 1)")
    tuning.add_argument("--minutes", type=float, metavar="M", help="stop after this time")
    tuning.add_argument("--devices", type=int, default=1, metavar="N", help="GPUs to measure on (default: 1)")
    tuning.add_argument("--ray", metavar="ADDRESS", help="GPUs of this Ray cluster instead (auto: the one that this machine is part of)")
    tuning.add_argument("--store", metavar="FILE", help="timing store (default: $EMMY_EQ_STORE, else in the user's cache folder)")
    tuning.set_defaults(command=tune_command)

    storing = add("store", parents=[common], help="the measured times")
    storing.add_argument("action", choices=("show", "export", "import"), help="the best row of each kernel; write lines; read lines")
    storing.add_argument("file", nargs="?", metavar="LINES", help="JSON lines to write or read (default: standard output or input)")
    storing.add_argument("--store", metavar="FILE", help="as for tune")
    storing.add_argument("--json", action="store_true", help="machine-readable output")
    storing.set_defaults(command=store_command)

    targeting = add("targets", parents=[common], help="the GPUs that code can be made for, and what was measured of this one")
    targeting.add_argument("action", nargs="?", choices=("calibrate",), help="measure this GPU; later compiles for it plan with that")
    targeting.add_argument("--target", help="calibrate: which of them this GPU is (default: by its name)")
    targeting.add_argument("--store", metavar="FILE", help="the record is kept beside this timing store (default: as for tune)")
    targeting.add_argument("-v", dest="verbose", action="store_true", help="the cost model's fitted constants too")
    targeting.add_argument("--json", action="store_true", help="machine-readable output")
    targeting.set_defaults(command=targets_command)
    return top


def compile_command(options: argparse.Namespace) -> int:
    from emmy_eq import report

    compiled = compiled_from(options)
    if options.targets is not None:
        from emmy_eq.explore import targets

        programs = targets.compiled_for(compiled, options.targets)
        print(json.dumps(targets.records(programs), indent=1) if options.json else targets.text(programs))
        return 0
    if options.ir is not None:
        print(compiled.show(options.ir))
        return 0
    if options.explain_accuracy:
        from emmy_eq import accuracy

        print(accuracy.explain(compiled))
        return 0
    compiled.cuda  # noqa: B018 (what cannot be generated is said before a summary claims otherwise)
    if options.json:
        print(json.dumps(report.summary(compiled), indent=1))
        return 0
    print(report.explain(compiled, options.verbose))
    return 0


def run_command(options: argparse.Namespace) -> int:
    compiled = compiled_from(options)
    from emmy_eq import execute, report

    device = options.device or execute.default_device()
    with progress.doing("running on the simulator" if device == "sim" else "running"):
        outcome = execute.run_example(compiled, device, check=options.check, bench=options.bench)
    print(json.dumps(outcome.record(), indent=1) if options.json else report.outcome(outcome))
    return 0 if outcome.passed else 1


def explore_command(options: argparse.Namespace) -> int:
    from emmy_eq import explore
    from emmy_eq.explore import sizes
    from emmy_eq.explore.plot import plot

    if options.sweep is not None and options.code is None:
        raise InvalidInput("--sweep", "it changes a size in the text of -c CODE")
    compiled = compiled_from(options)
    swept = explore.sweep(options.code, options.sweep, compiled.options) if options.sweep is not None else None
    found = explore.study(compiled)
    if options.json:
        plans = explore.records(found)
        print(json.dumps(plans if swept is None else {"plans": plans, "sweep": sizes.record(swept)}, indent=1))
    else:
        print("\n\n".join([explore.text(found), *([sizes.text(swept)] if swept is not None else [])]))
    if options.plot is not None:
        plot(found, options.plot, swept)
    if options.html is not None:
        write(options.html, explore.page(found, options.code or options.program, swept))
    return 0


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error)) from error


def explain_command(options: argparse.Namespace) -> int:
    from emmy_eq import steps

    found = steps.steps(compiled_from(options))
    print(json.dumps([step.record() for step in found], indent=1) if options.json else steps.show(found))
    return 0


def fuzz_command(options: argparse.Namespace) -> int:
    from emmy_eq.fuzz import fuzz

    return fuzz(options.minutes, options.seed, options.corpus)


def tune_command(options: argparse.Namespace) -> int:
    """130 after Ctrl-C, as shells have it."""
    compiled = compiled_from(options)
    from emmy_eq import tuning

    for name in ("rows", "plans", "devices"):
        if getattr(options, name) < 1:
            raise InvalidInput(f"--{name} {getattr(options, name)}", "it is at least 1")
    found = tuning.tune(compiled, store_path(options), options.rows, options.minutes, options.plans, options.devices, options.ray)
    print(json.dumps(found.record(), indent=1) if options.json else found.text())
    if found.done.interrupted:
        return 130
    return 0 if all(k.best is not None for k in found.done.kernels) else 1


def store_command(options: argparse.Namespace) -> int:
    from emmy_eq.extract import store

    path = store_path(options)
    if options.action != "import" and not path.is_file():
        if options.store is not None or options.action == "export":
            raise InvalidInput(f"timing store {path}", "there is no such file; tune makes it")
        print("[]" if options.json else f"No measurements yet: tune makes {path}.")
        return 0
    with store.Store(path) as opened:
        if options.action == "show":
            print(json.dumps(store.kernel_records(opened), indent=1) if options.json else store.kernel_table(opened))
            return 0
        writes = options.action == "export"
        with lines(options.file, writes) as file:
            count = store.export_lines(opened, file) if writes else store.import_lines(opened, file)
    print(f"{count} measurements {'exported' if writes else 'added'}", file=sys.stderr)
    return 0


@contextmanager
def lines(path: str | None, writes: bool) -> Iterator[TextIO]:
    """The file at ``path``; None: standard output or input."""
    if path is None:
        yield sys.stdout if writes else sys.stdin
        return
    try:
        with open(path, "w" if writes else "r") as file:
            yield file
    except OSError as error:
        raise InvalidInput(path, error.strerror or str(error)) from error


def extract_command(options: argparse.Namespace) -> int:
    from emmy_eq.extract.dag.report import run

    return run(options.file, options.time, options.json, options.began)


def rules_command(options: argparse.Namespace) -> int:
    from emmy_eq import report
    from emmy_eq.pipeline import check_accuracy
    from emmy_eq.rules import active, library

    check_accuracy(options.accuracy)
    own = {rule.name: rule for rule in rules_of(options.rules)}
    known = library() | own
    if options.action == "catalogue":
        from emmy_eq.catalogue import page

        print(page(), end="")
        return 0
    if options.action == "suggest":
        return suggest_command(options, tuple(own.values()))
    if options.action == "show" and options.name is None and not own:
        raise InvalidInput("rules show", "say which rule; `emmy-eq rules list` has the names")
    if options.name is not None and options.name not in known:
        near = difflib.get_close_matches(options.name, known, 3, 0.4)
        hint = f"the nearest names are {', '.join(near)}; " if near else ""
        raise InvalidInput(f"rule {options.name!r}", f"there is none; {hint}`emmy-eq rules list` has all")
    chosen = (known[options.name],) if options.name is not None else tuple(own.values()) or active(options.accuracy)
    if options.action != "check":
        text = report.rules if options.action == "list" else report.rule
        print(json.dumps([report.rule_record(rule) for rule in chosen], indent=1) if options.json else text(chosen))
        return 0
    from emmy_eq.rules import certify

    found = certify.certify_all(chosen, options.rules, certify.to_stderr)
    print(json.dumps({o.certificate.rule: certify.record(o) for o in found}, indent=1) if options.json else certify.show(found))
    return 0 if all(o.holds for o in found) else 1


def suggest_command(options: argparse.Namespace, own: Sequence[Rule]) -> int:
    """Equal values of a program that the rules leave apart, as candidate rules."""
    from emmy_eq.egraph import saturate
    from emmy_eq.lower import lower
    from emmy_eq.rule import Rounding
    from emmy_eq.rules import active
    from emmy_eq.suggest import show, suggest
    from emmy_eq.to_terms import to_terms
    from emmy_eq.torch_ir import capture_code

    if options.code is None:
        raise InvalidInput("rules suggest", "give a program with -c CODE")
    # An approximation has the fingerprint of what it stands for.
    exact = (r for r in active(options.accuracy) if r.rounding < Rounding.APPROXIMATES)
    found = suggest(saturate(to_terms(lower(capture_code(options.code))), (*exact, *own), certified=not own))
    print(json.dumps([s.record() for s in found], indent=1) if options.json else show(found))
    return 0


def targets_command(options: argparse.Namespace) -> int:
    if options.action == "calibrate":
        return calibrate_command(options)
    from emmy_eq import report
    from emmy_eq.extract.calibration import show
    from emmy_eq.extract.targets import UNITS, calibrations, target, targets

    rows = [report.fields(t) | {"contraction_units": t.large_units} for t in map(target, targets())]
    shown = rows if options.verbose else [{key: x for key, x in row.items() if key != "fitted"} for row in rows]
    print(json.dumps(rows, indent=1) if options.json else report.records(shown, UNITS))
    for found in () if options.json else calibrations().values():
        print(f"\n{show(found, targets()[found.target].published)}")
    return 0


def calibrate_command(options: argparse.Namespace) -> int:
    from emmy_eq.execute import require_cuda

    require_cuda("targets calibrate")
    from emmy_eq import report
    from emmy_eq.codegen.calibrate import calibrate, present
    from emmy_eq.extract import calibration
    from emmy_eq.extract.targets import target

    path = calibration.path_beside(store_path(options))
    chosen = target(options.target) if options.target is not None else present()
    found = calibrate(chosen, lambda text: print(text, file=sys.stderr, flush=True))
    calibration.keep(path, found)
    print(json.dumps(report.fields(found), indent=1) if options.json else calibration.show(found, chosen.published))
    return 0
