"""``python -m coordinator.cli``: the command ``podium``, by the interpreter that runs it."""

import sys

from coordinator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
