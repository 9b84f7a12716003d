"""Tuning: kernels are timed under candidate schedule rows in worker processes, and the times go into the timing store."""

from emmy_eq.codegen.tune.session import Tuned as Tuned
from emmy_eq.codegen.tune.session import Tuner as Tuner
from emmy_eq.codegen.tune.session import Tuning as Tuning
from emmy_eq.codegen.tune.session import tune as tune
from emmy_eq.codegen.tune.stored import stored_row as stored_row
from emmy_eq.codegen.tune.stored import stored_times as stored_times
