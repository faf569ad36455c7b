"""Import a module while others are blocked: ``import_without.py podium.agent ray pyfuse3``.

Static checks (import-linter) do not see what a library pulls in at run time; this does.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class Blocked(MetaPathFinder):
    """Refuses the named top-level modules."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise for a blocked name; leave all others to the finders that follow."""
        del path, target
        if fullname.partition(".")[0] in self.names:
            raise ImportError(f"{fullname} is blocked here: it must not be needed")


def main() -> None:
    """Import the first argument with all others blocked."""
    module, *names = sys.argv[1:]
    loaded = [name for name in names if name in sys.modules]
    if loaded:
        sys.exit(f"cannot block {', '.join(loaded)}: already imported by Python itself")
    sys.meta_path.insert(0, Blocked(names))
    importlib.import_module(module)
    print(f"{module} imports without {', '.join(names)}")


if __name__ == "__main__":
    main()
