"""The worker process: ``python -m emmy_eq.codegen.tune.worker MODULE:FACTORY NUMBER`` serves one device, one JSON line at a time.

    {"prepare": LOOP IR, "target": FIELDS}    {"prepared": true} or {"outcome": "refused", "note": WHY}
    {"measure": SCHEDULE ROW}                 {"outcome", "samples", "error", "limit", "contract", "note"}
    {"together": LOOP IR OF A PROGRAM, "rows": [SCHEDULE ROW, ...], "target": FIELDS}    the same

It answers each line with one, and first of all says ``{"facts": ...}``.  After an answer of ``fault`` it is of no more use: an error
of a kernel stays in the device's context.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from typing import Any, TextIO

from emmy_eq import loop_ir
from emmy_eq.codegen import schedule
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.codegen.tune.protocol import Device, Sample
from emmy_eq.errors import EmmyError
from emmy_eq.extract.targets import Target

Answer = dict[str, Any]


def main(factory: str, number: int) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not stand among the answers
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, _, name = factory.partition(":")
    try:
        device: Device = getattr(import_module(module), name)(number)
    except EmmyError as error:
        _say(answers, {"failed": str(error)})
        return
    _say(answers, {"facts": dict(device.facts)})
    questions: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(questions,), daemon=True).start()
    measure: Callable[[Schedule], Sample] | None = None
    while True:
        question = json.loads(questions.get())
        try:
            if "prepare" in question:
                measure = None  # frees what the last kernel held
                measure = device.prepare(loop_ir.parse(question["prepare"], loop_ir.Kernel), Target(**question["target"]))
                _say(answers, {"prepared": True})
            elif "together" in question:
                program = loop_ir.parse(question["together"], loop_ir.Program)
                _say(
                    answers,
                    _answer(device.together(program, [schedule.parse(row) for row in question["rows"]], Target(**question["target"]))),
                )
            else:
                assert measure is not None
                _say(answers, _answer(measure(schedule.parse(question["measure"]))))
        except Exception as error:
            _say(answers, {"outcome": outcome(error), "note": f"{type(error).__name__}: {error}"})


def _read(questions: SimpleQueue[str]) -> None:
    """Ends the process when its parent is gone, even while a kernel runs for ever."""
    for line in sys.stdin:
        questions.put(line)
    os._exit(0)


def _say(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")


def _answer(s: Sample) -> Answer:
    bounded = min(s.error, sys.float_info.max)  # NaNs and infinities at other places count as infinitely far
    verdict = "passed" if s.error <= s.limit else "wrong"
    return {"outcome": verdict, "samples": s.microseconds, "error": bounded, "limit": s.limit, "contract": s.contract}


def outcome(error: Exception) -> str:
    """What an exception says of the row: it cannot be compiled, memory is too small, or anything else."""
    if isinstance(error, EmmyError):
        return "refused"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "memory"
    return "fault"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
