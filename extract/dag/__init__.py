"""DAG extraction: the cheapest acyclic choice of one node a class, a class that is used twice being paid once."""

from __future__ import annotations

if __name__ != "emmy_eq.extract.dag":
    raise ImportError("import emmy_eq.extract.dag, not extract.dag")

from emmy_eq.extract.dag.check import check as check
from emmy_eq.extract.dag.egraph import Choice as Choice
from emmy_eq.extract.dag.egraph import EGraph as EGraph
from emmy_eq.extract.dag.egraph import dag_cost as dag_cost
from emmy_eq.extract.dag.serialize import Serialized as Serialized
from emmy_eq.extract.dag.serialize import read as read
from emmy_eq.extract.dag.serialize import write as write
from emmy_eq.extract.dag.solve import Extraction as Extraction
from emmy_eq.extract.dag.solve import extract as extract
from emmy_eq.extract.dag.variety import k_best as k_best
