"""Workers on other machines, through Ray (extra ``ray``): an actor a GPU, with a worker process and its watchdog beside the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emmy_eq.codegen.tune.watchdog import LocalWorker
from emmy_eq.errors import EmmyError, InvalidInput


class RayWorker:
    """A `Worker` on any machine of the cluster that this process has joined; ``gpus``: how many its actor reserves."""

    def __init__(self, factory: str, gpus: float = 1) -> None:
        import ray

        self._ray = ray
        # Ray shows the actor only the device that it reserved, as number 0.  Two threads: `stop` comes while `ask` waits.
        self._actor = ray.remote(num_gpus=gpus, max_concurrency=2)(LocalWorker).remote(factory, 0)

    def start(self) -> dict[str, str]:
        return self._call("start")

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        return self._call("ask", question, seconds)

    def kill(self) -> None:
        self._actor.kill.remote()

    def stop(self) -> None:
        self._ray.kill(self._actor)  # its worker process ends with it

    def _call(self, method: str, *given: object) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._ray.get(getattr(self._actor, method).remote(*given))
            return answer
        except self._ray.exceptions.RayError as error:  # says nothing about the row: its machine is gone
            raise EmmyError(f"A tuning worker was lost: {str(error).strip().splitlines()[-1]}") from error


def ray_workers(address: str, count: int, factory: str, gpus: float = 1) -> Sequence[RayWorker]:
    """``count`` workers in the cluster at ``address`` (``auto``: the one that this machine is part of), where emmy_eq is installed too."""
    try:
        import ray
    except ImportError as error:
        raise InvalidInput(f"--ray {address}", "it needs Ray: pip install 'emmy_eq[ray]'") from error
    try:
        ray.init(address=address, logging_level="error", log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"--ray {address}", str(error).strip().splitlines()[0]) from error
    have = int(ray.cluster_resources().get("GPU", 0)) if gpus else count
    if have < count:
        raise InvalidInput(f"--devices {count}", f"the cluster at {address} has {have}")  # else actors wait for ever
    return [RayWorker(factory, gpus) for _ in range(count)]
