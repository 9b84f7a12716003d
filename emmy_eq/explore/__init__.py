"""The explorer: the front of a program's plans as text, JSON, a picture and a page, and fuse against cut along one size."""

from emmy_eq.explore.html import page as page
from emmy_eq.explore.report import records as records
from emmy_eq.explore.report import text as text
from emmy_eq.explore.sizes import Sweep as Sweep
from emmy_eq.explore.sizes import sweep as sweep
from emmy_eq.explore.studied import Study as Study
from emmy_eq.explore.studied import study as study
