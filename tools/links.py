"""Check every relative link of the project's Markdown: its file exists, and its heading too. Exits with 1 if not.

Headings have the anchors that GitHub gives them. Links to other sites are not followed. A code span that is a path from
the top of the repository, like ``chronicle/blobs/packs/``, must name what is there; in decisions and in the changelog
it may be what was there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
_PARSER: Final = MarkdownIt("commonmark").enable("table")
_PATH: Final = re.compile(r"(?:chronicle|coordinator|docs|examples|podium|tests|tools)/[\w./{},-]*")
_OF_THEN: Final = ("docs/adr/", "CHANGELOG.md")
"""Pages about the past: a file of theirs may have been moved."""


def main() -> None:
    """Check all pages that git tracks."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    pages = [ROOT / name for name in tracked.stdout.splitlines() if (ROOT / name).exists()]
    broken = [f"{page.relative_to(ROOT)}:{line}: {link}: {why}" for page in pages for line, link, why in faults(page)]
    if broken:
        sys.exit("\n".join(["broken links:", *broken]))
    print(f"the links of {len(pages)} pages lead somewhere")


def faults(page: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the broken links of a page: the line, the link, and what is missing."""
    for line, link in _links(page):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path) if path else page
        if not target.exists():
            yield line, link, "no such file"
        elif anchor and target.suffix == ".md" and anchor not in _anchors(target.resolve()):
            yield line, link, "no such heading"
    if not page.is_relative_to(ROOT) or not str(page.relative_to(ROOT)).startswith(_OF_THEN):
        for line, span in _code_spans(page):
            if _PATH.fullmatch(span) and not all((ROOT / path).exists() for path in _expanded(span)):
                yield line, span, "no such path"


def _links(page: Path) -> Iterator[tuple[int, str]]:
    for token in _PARSER.parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            link = child.attrs.get("href") or (child.attrs.get("src") if child.type == "image" else None)
            if link:
                yield (token.map or [0])[0] + 1, str(link)


def _code_spans(page: Path) -> Iterator[tuple[int, str]]:
    for token in _PARSER.parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "code_inline":
                yield (token.map or [0])[0] + 1, child.content


def _expanded(span: str) -> list[str]:
    """Return the paths of a span with alternatives, like ``a/{b,c}.py``."""
    if (group := re.search(r"\{([^{}]*)\}", span)) is None:
        return [span]
    return [
        path for each in group[1].split(",") for path in _expanded(span[: group.start()] + each + span[group.end() :])
    ]


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page: of a heading that is repeated, the second one ends in ``-1``, and so on."""
    found: dict[str, int] = {}
    tokens = _PARSER.parse(page.read_text(encoding="utf-8"))
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or () if child.type in {"text", "code_inline"})
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            times = found[slug] = found.get(slug, -1) + 1
            if times:
                found[f"{slug}-{times}"] = 0
    return frozenset(found)


if __name__ == "__main__":
    main()
