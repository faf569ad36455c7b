"""Write the generated pages of ``docs/reference``, or with ``--check`` say which are not what the code gives now."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.reference import cli, events, http, metrics, settings

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/cli.md": cli.page,
    "reference/events.md": events.page,
    "reference/http.md": http.page,
}
"""Pages that are generated whole."""
SECTIONS: Final[dict[str, Callable[[], str]]] = {
    "observability.md": metrics.section,
    "settings.md": settings.section,
}
"""Pages with a part that is generated, between two comments."""
_SECTION: Final = re.compile(
    r"(<!-- Generated from the code by `make docs` -->\n)(.*?)(<!-- End of what is generated -->)", re.DOTALL
)


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    pages = {name: page() for name, page in PAGES.items()} | {name: _filled(name) for name in SECTIONS}
    stale = [name for name, text in pages.items() if not _is_current(DOCS / name, text)]
    if check and stale:
        sys.exit(f"docs: {', '.join(stale)} out of date; make docs writes them from the code")
    for name in stale:
        (DOCS / name).write_text(pages[name], encoding="utf-8")
    print(f"docs: {', '.join(pages)} are what the code gives")


def _filled(name: str) -> str:
    """Return a page with its generated part."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return _SECTION.sub(lambda found: f"{found[1]}\n{SECTIONS[name]()}\n\n{found[3]}", text)


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main()
