"""DAG extraction against all choices of small e-graphs, and against known optima of public ones."""

from __future__ import annotations

import importlib.util
import math
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings

from emmy_eq.errors import InvalidInput, VerifyError
from emmy_eq.extract.dag import EGraph, check, dag_cost, extract, k_best, read
from emmy_eq.extract.dag import solve as solve_module
from emmy_eq.extract.dag.egraph import closure, cyclic_classes, from_rows, tree_costs
from emmy_eq.extract.dag.greedy import greedy
from emmy_eq.extract.dag.loops import Separator
from emmy_eq.extract.dag.reduce import reduce
from emmy_eq.extract.dag.variety import distance
from tests.dag_samples import cheapest, egraphs

DATA = Path(__file__).parent / "data" / "extraction"
needs_solver = pytest.mark.skipif(importlib.util.find_spec("highspy") is None, reason="needs highspy (extra `solver`)")
# proofs round a solver's bound by 1e-9, relative; costs below are of size 1
CLOSE = 1e-6


@needs_solver
@given(egraphs())
@settings(max_examples=150, deadline=None)
def test_extract_finds_the_cheapest_choice(graph: EGraph) -> None:
    best = cheapest(graph)
    if best == math.inf:
        with pytest.raises(InvalidInput, match="no finite extraction"):
            extract(graph)
        return
    found = extract(graph)
    assert check(graph, found.choice) == found.dag_cost == pytest.approx(best, rel=CLOSE)
    assert found.lower_bound == pytest.approx(best, rel=CLOSE, abs=CLOSE)
    assert found.lower_bound <= found.dag_cost <= found.greedy_cost


@needs_solver
@given(egraphs((0.0, 1e-9, 3e-9, 1.0, 1e9, 2e9, math.inf)))
@settings(max_examples=60, deadline=None)
def test_costs_of_all_sizes(graph: EGraph) -> None:
    best = cheapest(graph)
    if best == math.inf:
        return
    found = extract(graph)
    assert check(graph, found.choice) == pytest.approx(best, rel=CLOSE)
    assert found.lower_bound <= best


@given(egraphs())
@settings(max_examples=150, deadline=None)
def test_reduction_keeps_a_cheapest_choice(graph: EGraph) -> None:
    _, tree = tree_costs(graph)
    if any(root not in tree for root in graph.roots):
        assert cheapest(graph) == math.inf
        return
    small = reduce(graph)
    assert cheapest(small.graph) == pytest.approx(cheapest(graph), rel=CLOSE)
    choice = small.expand(closure(small.graph, greedy(small.graph), small.graph.roots), graph)
    assert check(graph, choice) >= cheapest(graph) * (1 - CLOSE)


@given(egraphs())
@settings(max_examples=100, deadline=None)
def test_without_a_solver(graph: EGraph) -> None:
    best = cheapest(graph)
    if best == math.inf:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve_module, "solver", lambda: False)
        found = extract(graph)
    assert check(graph, found.choice) == found.dag_cost <= found.greedy_cost
    assert found.lower_bound <= best * (1 + CLOSE)


@given(egraphs())
@settings(max_examples=100, deadline=None)
def test_loop_formulas_hold_for_acyclic_choices_and_cut_cyclic_ones(graph: EGraph) -> None:
    _, tree = tree_costs(graph)
    if any(root not in tree for root in graph.roots):
        return
    small = reduce(graph)
    separator = Separator(small.graph, small.must)
    first = {cls: nodes[0] for cls, nodes in enumerate(small.graph.members)}
    choice = closure(small.graph, first, small.graph.roots)
    rows = separator.of_choice(choice)
    assert bool(rows) == bool(cyclic_classes(small.graph, choice))
    valid = closure(small.graph, greedy(small.graph), small.graph.roots)
    for row in rows:
        assert not set(row.nodes) & set(choice.values())
        assert row.cls not in valid or set(row.nodes) & set(valid.values())


@needs_solver
@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("egg_math_simplify_factor", 5.0),
        ("eggcc-bril_gamma_pull_in.bril", 36.0),
        ("rover_mcm_3_7_21_original_8iteration_egraph", 1050.0),
        ("tensat_resnet50", 4.385794964760862),
    ],
)
def test_public_egraphs(name: str, cost: float) -> None:
    found = extract(read(DATA / f"{name}.json.gz").graph, seconds=60)
    assert found.dag_cost == pytest.approx(cost, rel=1e-9)
    assert found.proved


@needs_solver
def test_neighbourhoods_alone_find_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the whole is too large for the solver."""
    monkeypatch.setattr("emmy_eq.extract.dag.exact.exact", lambda known, level, until: None)
    found = extract(read(DATA / "tensat_resnet50.json.gz").graph, seconds=4)
    assert found.dag_cost == pytest.approx(4.385794964760862, rel=1e-9)
    assert found.dag_cost < found.greedy_cost


def test_greedy_without_time_or_memory_takes_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = read(DATA / "rover_mcm_3_7_21_original_8iteration_egraph.json.gz").graph
    in_full = check(graph, closure(graph, greedy(graph), graph.roots))
    assert check(graph, closure(graph, greedy(graph, until=0.0), graph.roots)) >= in_full
    monkeypatch.setattr("emmy_eq.extract.dag.greedy.MOST_BITS", 1000)
    assert check(graph, closure(graph, greedy(graph), graph.roots)) >= in_full


@needs_solver
def test_a_large_egraph_keeps_the_time_limit() -> None:
    """50,000 nodes without structure; the bound leaves room for a machine that others use too."""
    chance = random.Random(0)
    rows = [(cls, float(chance.randint(1, 9)), [chance.randrange(max(0, cls - 300), cls) for _ in range(cls > 30 and 2)])
            for cls in range(25_000) for _ in range(2)]  # fmt: skip
    start = time.perf_counter()
    found = extract(from_rows(rows, [24_999], 25_000), seconds=3)
    assert time.perf_counter() - start < 9
    assert found.lower_bound <= found.dag_cost <= found.greedy_cost


def test_the_same_choice_twice() -> None:
    graph = read(DATA / "egg_math_simplify_factor.json.gz").graph
    assert extract(graph).choice == extract(graph).choice


def test_sharing_beats_trees() -> None:
    """f(g, h) of two unshared classes costs 6 as a tree and 7 in all; through the shared class it costs 9 as a tree, 5 in all."""
    rows = [(0, 1.0, [1, 2]), (1, 3.0, []), (1, 0.5, [3]), (2, 3.0, []), (2, 0.5, [3]), (3, 3.0, [])]
    graph = from_rows(rows, [0], 4)
    assert extract(graph).dag_cost == 5.0 if importlib.util.find_spec("highspy") else extract(graph).dag_cost <= 7.0


def test_check_refuses_what_is_not_a_choice() -> None:
    graph = from_rows([(0, 1.0, [1]), (1, 1.0, [0]), (1, 5.0, []), (0, math.inf, [])], [0], 2)
    with pytest.raises(VerifyError, match="it needs itself"):
        check(graph, {0: 0, 1: 1})
    with pytest.raises(VerifyError, match="no node of its own"):
        check(graph, {0: 0})
    with pytest.raises(VerifyError, match="no node of its own"):
        check(graph, {0: 1, 1: 2})
    with pytest.raises(VerifyError, match="not finite"):
        check(graph, {0: 3})
    assert check(graph, {0: 0, 1: 2}) == 6.0


@given(egraphs())
@settings(max_examples=40, deadline=None)
def test_k_best_are_valid_distinct_and_in_order(graph: EGraph) -> None:
    if cheapest(graph) == math.inf:
        return
    choices = k_best(graph, 3, seconds=5, apart=2)
    costs = [dag_cost(graph, choice) for choice in choices]
    assert costs == sorted(costs)
    assert all(check(graph, choice) == cost for choice, cost in zip(choices, costs, strict=True))
    assert all(distance(a, b) >= 2 for n, a in enumerate(choices) for b in choices[:n])


def test_deep_chains_need_no_recursion() -> None:
    depth = 30_000
    rows = [(n, 1.0, [n + 1]) for n in range(depth)] + [(depth, 1.0, [])]
    found = extract(from_rows(rows, [0], depth + 1), seconds=20)
    assert found.dag_cost == depth + 1
    assert found.proved
