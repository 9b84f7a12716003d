"""Tuning through Ray: a cluster of one machine that says it has two GPUs, with devices that need none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emmy_eq.codegen.tune import Tuner
from emmy_eq.codegen.tune.cluster import ray_workers
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.targets import target
from tests.fake_devices import LOG, PLANTED
from tests.loop_samples import rmsnorm, softmax


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"pip install 'emmy_eq\[ray\]'"):
        ray_workers("auto", 1, "tests.fake_devices:Fake")


@pytest.mark.filterwarnings("ignore")  # of Ray's own start
def test_workers_in_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="needs Ray (extra `ray`)")
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    monkeypatch.setenv(PLANTED, ",abort,")
    said: list[str] = []
    try:
        ray.init(num_cpus=2, num_gpus=2, include_dashboard=False)
        with pytest.raises(InvalidInput, match="has 2"):
            ray_workers("auto", 3, "tests.fake_devices:Fake")
        workers = ray_workers("auto", 2, "tests.fake_devices:Fake")
        with Tuner(target("H200"), tmp_path / "t.sqlite", workers=workers, command="test", say=said.append) as tuner:
            done = tuner.tune([rmsnorm(64, 256), softmax(64, 256)], rows=3)
        assert [k.measured for k in done.kernels] == [3, 3]
        assert [m.outcome for k in done.kernels for m in k.marks] == ["fault"]
        assert all(k.best is not None for k in done.kernels)
    finally:
        ray.shutdown()
