"""How far a saturation is safe: another process goes first, under limits of memory and time.

egglog cannot be interrupted within a step, nor can one that outgrows memory be survived.  Rules of the library are known not to
diverge; those of a user may, so that the compiler's own process takes only the steps that the other one has survived.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emmy_eq.egraph import Limits
    from emmy_eq.encode import Encoding
    from emmy_eq.terms import AxisTable

START = 10.0  # seconds that the other process may take to begin and to end
RAISED = 1  # what Python returns after an exception
_STEP, _END = b".", b"!"


def survived(text: str, encoded: Encoding, axes: AxisTable, limits: Limits) -> tuple[int, str] | None:
    """Steps that are safe and the limit that the next one met; None where all of the saturation is, or where it raises, as it will here."""
    job = pickle.dumps((text, encoded.indices, encoded.buffers, axes, limits))
    command = [sys.executable, "-P", "-c", "from emmy_eq.probe import main; main()"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        done = subprocess.run(command, input=job, capture_output=True, timeout=limits.seconds + START, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").count(_STEP), "seconds"
    if done.stdout.endswith(_END) or (done.returncode == RAISED and b"MemoryError" not in done.stderr):
        return None
    return done.stdout.count(_STEP), "megabytes"


def main() -> None:
    """The other process: a byte a step, and one at the end."""
    from emmy_eq.egraph import Run, bindings
    from emmy_eq.encode import Encoding

    text, indices, buffers, axes, limits = pickle.load(sys.stdin.buffer)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (limits.megabytes << 20), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def say(byte: bytes) -> None:
        sys.stdout.buffer.write(byte)
        sys.stdout.buffer.flush()

    run = Run(bindings().EGraph(), limits, stepped=lambda: say(_STEP))
    run.saturate(text, Encoding(buffers=buffers, indices=indices), axes)
    say(_END)
