"""What the documents say is there: commands, targets and files. Their code is run by `test_guides`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.main import COMMANDS, GROUPS

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_every_command_that_users_are_told_of_exists() -> None:
    texts = [README, *(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "guide").glob("*.md"))]
    named = {name for text in texts for name in re.findall(r"(?:`|\$ |bin/)podium ([a-z]+)", text)}
    assert len(named) > 10
    assert named <= COMMANDS.keys() | GROUPS.keys()


def test_every_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^ +|`)make ([a-z]+)", text, re.MULTILINE)) <= targets


def test_every_exit_code_is_in_the_readme() -> None:
    table = README.partition("## Exit codes")[2].partition("\n## ")[0]
    numbers = {int(number) for number in re.findall(r"\d+", table)}
    for first, last in re.findall(r"(\d+)–(\d+)", table):
        numbers |= set(range(int(first), int(last) + 1))
    assert {int(code) for code in ExitCode} <= numbers


def test_the_places_of_the_internals_exist() -> None:
    page = (ROOT / "docs" / "internals" / "README.md").read_text(encoding="utf-8").partition("## Rooms")[0]
    places = re.findall(r"`((?:chronicle|podium|coordinator)/[\w/.]+)`(?: \(`(\w+)`\))?", page)
    assert len(places) > 20
    for place, name in places:
        assert (ROOT / place).exists(), place
        assert not name or re.search(rf"\b{name}\b", (ROOT / place).read_text(encoding="utf-8")), (place, name)


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []
