"""``python -m graphopt`` is the ``graphopt`` command."""

import sys

from graphopt.cli import main

if __name__ == "__main__":
    sys.exit(main())
