"""Write the generated pages of ``docs/reference``, or with ``--check`` say which are not what the code gives now."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.reference import cli, events

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES: Final[dict[str, Callable[[], str]]] = {"cli.md": cli.page, "events.md": events.page}
DIRECTORY: Final = Path(__file__).parents[2] / "docs" / "reference"


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path, text = DIRECTORY / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.exit(f"docs/reference: {', '.join(stale)} out of date; make docs writes them from the code")
    print(f"docs/reference: {', '.join(PAGES)} are what the code gives")


if __name__ == "__main__":
    main()
