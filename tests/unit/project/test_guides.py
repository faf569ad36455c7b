"""The users' guide: its code runs and gives what is shown, and it leaves nothing public out.

`tests.guide_pages` says what a page may have. Pages that start a service are run in ``tests/e2e``.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import pytest

from podium.agent import AgentContext, BaseAgent
from podium.testing import AgentHarness, Exchange
from tests.guide_pages import ROOT, Page, pages, read_page, run_page

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = ROOT / "docs" / "guide"


@pytest.mark.parametrize("page", [page for page in pages() if not page.uses_a_service], ids=lambda page: page.name)
def test_the_code_of_a_page_gives_what_is_shown(page: Page, tmp_path: Path) -> None:
    run_page(page, tmp_path)
    assert not list(tmp_path.rglob(".podium")), f"{page.name} started a service: run it in tests/e2e"


def test_every_page_is_in_the_index() -> None:
    index = (GUIDE / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in GUIDE.glob("*.md")} - {"README.md"} == set(re.findall(r"\]\((\w+\.md)\)", index))


def names_of(cls: type) -> set[str]:
    """The public names that a class declares, its attributes that only instances have included."""
    assigned = re.findall(r"\bself\.(\w+)(?::[^=\n]+)? = ", inspect.getsource(cls))
    return {name for name in [*vars(cls), *assigned] if not name.startswith("_")}


def unexplained(names: set[str], page: str) -> list[str]:
    """Those of some names that a page does not have in its code or between backquotes."""
    text = (GUIDE / page).read_text(encoding="utf-8")
    return sorted(name for name in names if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", text))


@pytest.mark.parametrize(
    ("cls", "page"),
    [(AgentContext, "context.md"), (BaseAgent, "context.md"), (AgentHarness, "testing.md"), (Exchange, "testing.md")],
)
def test_every_public_name_is_explained(cls: type, page: str) -> None:
    assert unexplained(names_of(cls), page) == []


# -- that a wrong page is found ----------------------------------------------------------------------------------------


def written(tmp_path: Path, text: str) -> Page:
    (tmp_path / "page.md").write_text(text.replace("'''", "```"))
    return read_page(tmp_path / "page.md")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("'''python\nprint(1 + 1)\n'''\n'''text\n3\n'''\n", "-- printed:\n2"),
        ("'''python\nprint(1)\n'''\n", "-- printed:\n1"),
        ("'''python\nprint(1)\n1 / 0\n'''\n'''text\n1\n'''\n", "ZeroDivisionError: division by zero"),
        ("'''python\nx = 1\n'''\n'''text\nx\n'''\n", "-- shown:\nx"),
        ("'''console\n$ echo one\ntwo\n$ true\n'''\n", "page.md:2:"),
        ("'''console\n$ true\n$ false\n'''\n", "ended with 1"),
    ],
)
def test_what_is_not_as_shown_is_found(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        run_page(written(tmp_path, text), tmp_path / "run")


@pytest.mark.parametrize("text", ["'''\nls\n'''\n", "'''sh\nls\n'''\n", "'''console\n$ ls\n'''\n'''text\nx\n'''\n"])
def test_a_block_that_nothing_runs_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:\d"):
        written(tmp_path, text)


def test_files_statements_and_commands_are_one_session(tmp_path: Path) -> None:
    text = (
        "'''python\n# given.py\nNUMBER = 41\n'''\n"
        "'''python\nimport asyncio, given\nmine = await asyncio.sleep(0, given.NUMBER + 1)\n'''\n"
        "'''python\nprint(mine)\nopen('out', 'w').write('made')\nraise KeyError(mine)\n'''\n"
        "'''text\n42\nKeyError: 42\n'''\n"
        "'''console\n$ cat out; cd /; false\nmade\n$ echo $? at $PWD\n1 at /\n'''\n"
    )
    (tmp_path / "run").mkdir()
    steps = run_page(written(tmp_path, text), tmp_path / "run")
    assert [step.line for step in steps] == [6, 10, 19, 21]
