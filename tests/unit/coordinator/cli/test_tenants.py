"""Commands name an agent of another tenant than ``default`` as ``tenant:type/key``, and mean no other agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THEIRS = "acme:counter/a"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home with an agent ``counter/a`` of the default tenant, and one of ``acme``."""
    maker = HomeMaker(tmp_path / "home")
    for name, text in (("counter/a", "ours"), (THEIRS, "theirs")):
        agent = maker.agent(name)
        agent.turn(text, {"out.txt": f"{text}\n".encode()})
        agent.turn(f"{text} again")
        agent.sleep()
    yield maker
    maker.close()


@pytest.fixture
def podium(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(made.path, capsys)


def test_both_are_listed_and_verified(podium: Podium) -> None:
    assert [row["agent"] for row in podium.json("ps")["agents"]] == [THEIRS, "counter/a"]
    assert THEIRS in podium("ps")
    checked = podium.json("verify")
    assert checked["ok"]
    assert [row["agent"] for row in checked["agents"]] == [THEIRS, "counter/a"]
    assert [row["agent"] for row in podium.json("verify", THEIRS)["agents"]] == [THEIRS]


def test_each_is_read_by_its_name(podium: Podium) -> None:
    assert "theirs again" in podium("log", THEIRS)
    assert "theirs" not in podium("log", "counter/a")
    assert podium("cat", THEIRS, "out.txt") == "theirs\n"
    assert podium("cat", f"{THEIRS}@1", "out.txt") == "theirs\n"
    assert podium("cat", "default:counter/a", "out.txt") == "ours\n"
    assert podium.json("state", f"{THEIRS}@1")["state"] == {"count": 1}
    assert podium("history", THEIRS, "out.txt").count("write") == 1
    assert podium.json("inbox", THEIRS)["agent"] == THEIRS
    podium("state", "other:counter/a", code=ExitCode.UNKNOWN_AGENT)
    assert THEIRS in podium.err


def test_forks_diffs_and_rewinds_stay_in_the_tenant(podium: Podium) -> None:
    assert podium.json("fork", f"{THEIRS}@1", "b")["agent"] == "acme:counter/b"
    podium("state", "counter/b", code=ExitCode.UNKNOWN_AGENT)
    assert podium.json("diff", THEIRS, "acme:counter/b")["common_version"] == 4
    podium("rewind", THEIRS, "1")
    assert podium.json("state", THEIRS)["state"] == {"count": 1}
    assert podium.json("state", "counter/a")["state"] == {"count": 2}


def test_deleting_names_forks_with_their_tenant_and_spares_the_other(podium: Podium) -> None:
    podium("fork", THEIRS, "b")
    podium("delete", THEIRS, "--yes", code=ExitCode.CONFLICT)
    assert "acme:counter/b" in podium.err
    assert podium.json("delete", THEIRS, "--yes", "--detach")["detached"] == ["acme:counter/b"]
    assert [row["agent"] for row in podium.json("ps")["agents"]] == ["counter/a", "acme:counter/b"]
    podium("gc", "--now")
    assert podium("cat", "counter/a", "out.txt") == "ours\n"
    assert podium("cat", "acme:counter/b", "out.txt") == "theirs\n"


def test_archives_go_into_the_tenant_that_they_name(podium: Podium, tmp_path: Path) -> None:
    file, other = str(tmp_path / "agent.zip"), tmp_path / "other"
    assert podium.json("export", THEIRS, file)["agent"] == THEIRS
    assert podium.json("import", file, home=other)["agent"] == THEIRS
    assert podium("cat", THEIRS, "out.txt", home=other) == "theirs\n"
    podium("import", file, "--as", "counter/c", code=ExitCode.CONFLICT)
    assert "tenants share no history" in podium.err
    assert podium.json("import", file, "--as", "acme:counter/c")["agent"] == "acme:counter/c"
