"""The timing store: how long kernels took under their schedule rows, on which device, and whether their results were right."""

from emmy_eq.extract.store.best import best as best
from emmy_eq.extract.store.best import best_row as best_row
from emmy_eq.extract.store.best import best_times as best_times
from emmy_eq.extract.store.exchange import export_lines as export_lines
from emmy_eq.extract.store.exchange import import_lines as import_lines
from emmy_eq.extract.store.record import Key as Key
from emmy_eq.extract.store.record import Measurement as Measurement
from emmy_eq.extract.store.schema import StoreError as StoreError
from emmy_eq.extract.store.store import Store as Store
from emmy_eq.extract.store.store import default_path as default_path
from emmy_eq.extract.store.summary import kernel_records as kernel_records
from emmy_eq.extract.store.summary import kernel_table as kernel_table
