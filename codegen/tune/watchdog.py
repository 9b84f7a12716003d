"""The parent's side of a worker process: asks, waits no longer than agreed, and says how a worker was lost."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

from emmy_eq.errors import EmmyError

START_SECONDS = 180.0  # imports torch and makes a CUDA context, perhaps beside many others


class Lost(Exception):
    """A worker that gave no answer: ``outcome`` is ``hang``, ``memory`` or ``fault``."""

    def __init__(self, outcome: str, note: str) -> None:
        self.outcome, self.note = outcome, note
        super().__init__(note)


class LocalWorker:
    """A `Worker` on device ``number`` of this machine: a process of its own."""

    def __init__(self, factory: str, number: int) -> None:
        self._command = [sys.executable, "-m", "emmy_eq.codegen.tune.worker", factory, str(number)]
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def start(self) -> dict[str, str]:
        self.stop()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (`stop` closes it)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
            start_new_session=True,  # Ctrl-C is for the parent, which then stops its workers
        )
        try:
            answer = self._answer(START_SECONDS)
        except Lost as lost:
            raise EmmyError(f"The tuning worker did not start: {lost.note}") from lost
        if "failed" in answer:
            self.stop()
            raise EmmyError(answer["failed"])
        facts: dict[str, str] = answer["facts"]
        return facts

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            try:
                self._process.stdin.write(json.dumps(question).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._lost() from None
            return self._answer(seconds)
        except Lost as lost:
            return {"outcome": lost.outcome, "note": lost.note}

    def kill(self) -> None:
        """From any thread; the one that waits for an answer then raises `Lost`."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with what it started; it answers to nothing gentler while a kernel hangs

    def stop(self) -> None:
        if self._process is None:
            return
        self.kill()
        process, self._process, self._rest = self._process, None, b""
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # a question that was not sent
                pipe.close()
        self._errors.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.stop()
                raise Lost("hang", f"no answer within {seconds:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise self._lost()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self) -> Lost:
        """Of a worker whose pipe is closed."""
        assert self._process is not None
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
        self.stop()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        # Nobody but the system kills a worker that has not been stopped here.
        kind = "memory" if code == -signal.SIGKILL else "fault"
        return Lost(kind, " ".join([f"the worker {how}", *(f"({line.strip()})" for line in said)]))
