"""GPU times of several callables, taken in one process and interleaved, so that a drifting clock hits them alike.

Two medians each, in microseconds: *hot*, the mean over back-to-back runs in one CUDA graph; *cold*, one run after the
L2 cache was overwritten.  Both replay graphs, so no launch from the host is in the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

Run = Callable[[], object]

_GRAPH_US = 2000.0  # a hot graph is about this long: clock resolution (0.5 us) and launch (5 us) vanish in it
_MOST_RUNS = 200
_TRIES = 3  # replays of a graph of one run


@dataclass(frozen=True, slots=True)
class Times:
    """Medians in microseconds."""

    hot: float
    cold: float


def interleaved(runs: Mapping[str, Run], rounds: int = 15) -> dict[str, Times]:
    """Times of ``runs``, each round measuring every one of them once."""
    device = torch.cuda.current_device()
    once = {name: _graph(run, 1) for name, run in runs.items()}
    count = {name: _repeats(g) for name, g in once.items()}
    many = {name: _graph(run, count[name]) for name, run in runs.items()}
    # Twice the cache: a set-associative cache does not evict everything for one cache's worth of writes.
    flush = torch.empty(2 * torch.cuda.get_device_properties(device).L2_cache_size, dtype=torch.int8, device=device)
    hot: dict[str, list[float]] = {name: [] for name in runs}
    cold: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name in runs:
            hot[name].append(_elapsed(many[name]) / count[name])
            cold[name].append(_elapsed(once[name], flush))
    return {name: Times(median(hot[name]), median(cold[name])) for name in runs}


def together(runs: Mapping[str, Run], rounds: int = 7) -> dict[str, float]:
    """Hot medians of ``runs`` in microseconds, each round measuring every one of them once."""
    count = {name: _repeats(_graph(run, 1)) for name, run in runs.items()}
    many = {name: _graph(run, count[name]) for name, run in runs.items()}
    samples = [{name: _elapsed(many[name]) / count[name] for name in runs} for _ in range(rounds)]
    return {name: median(sample[name] for sample in samples) for name in runs}


def hot(run: Run, rounds: int = 15) -> list[float]:
    """Microseconds of one of back-to-back runs in a CUDA graph, a sample a replay."""
    count = _repeats(_graph(run, 1))
    graph = _graph(run, count)
    return [_elapsed(graph) / count for _ in range(rounds)]


def _repeats(graph: torch.cuda.CUDAGraph) -> int:
    """How many runs make a hot graph, given the graph of one.

    The first replay of a graph also uploads it, in up to a millisecond: too few runs would follow from that, and in their mean stands
    what starts a graph.
    """
    once = min(_elapsed(graph) for _ in range(_TRIES))
    return max(1, min(_MOST_RUNS, int(_GRAPH_US / max(once, 0.5))))


def _graph(run: Run, times: int) -> torch.cuda.CUDAGraph:
    """``times`` runs as one graph; the warm-up on a side stream is what CUDA graphs ask for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    return graph


def _elapsed(graph: torch.cuda.CUDAGraph, flush: torch.Tensor | None = None) -> float:
    """Microseconds of one replay; the flush keeps the device busy while the host enqueues, so launch latency is hidden."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if flush is not None:
        flush.zero_()
    start.record()
    graph.replay()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e3
