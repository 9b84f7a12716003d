"""``python -m emmy_eq`` is the ``emmy-eq`` command."""

import sys

from emmy_eq.cli import main

sys.exit(main())
