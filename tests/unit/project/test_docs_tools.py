"""The tools that keep the docs: broken links and paths are found, and generated pages say what the code says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.cli.main import COMMANDS
from podium import events
from tools.links import faults
from tools.reference import cli as cli_page
from tools.reference import events as events_page

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """# Title

## Two `words`, here

## Again
## Again

[fine](#two-words-here) [fine](other.md#title) [fine](#again-1) [outside](https://example.com/none)

[a](gone.md) and
[b](#nowhere)

| cell |
|---|
| [c](other.md#nothing) |

`[code](not-a-link.md)`, `tools/links.py`, `podium/turn/{activation,runner}.py`, `tests/`, `tests/{unit,gone}/`
"""


def test_broken_links_are_found_with_their_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (tmp_path / "other.md").write_text("# Title\n")
    found = [(link, why) for _, link, why in faults(page)]
    assert found == [
        ("gone.md", "no such file"),
        ("#nowhere", "no such heading"),
        ("other.md#nothing", "no such heading"),
        ("tests/{unit,gone}/", "no such path"),
    ]


def test_reference_has_every_command_and_its_options() -> None:
    text = cli_page.page()
    for name in COMMANDS:
        assert f"### podium {name}" in text
    assert "| `--when-busy` `enqueue\\|reject\\|interrupt\\|rollback\\|steer` | `enqueue` |" in text


def test_reference_has_every_event_that_podium_writes() -> None:
    text = events_page.page()
    written = events.EVENT_TYPES - {"tool_result", "retrieval_result", "checkpoint", "note"}
    assert [name for name in sorted(written) if f"\n## {name}\n" not in text] == []
    assert "| `from` | `ForkPoint` |" in text
    assert "| `partial` | `bool?` | True when its turn was interrupted before it was finished. |" in text
