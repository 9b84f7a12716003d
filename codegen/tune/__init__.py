"""Tuning: kernels are timed under candidate schedule rows in worker processes, and the times go into the timing store."""

from emmy_eq.codegen.tune.session import Tuned as Tuned
from emmy_eq.codegen.tune.session import Tuner as Tuner
from emmy_eq.codegen.tune.session import Tuning as Tuning
from emmy_eq.codegen.tune.session import tune as tune
