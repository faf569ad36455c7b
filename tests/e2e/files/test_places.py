"""Where agents' workspaces are: one path for each agent, whichever process wrote there before."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import AGENTS, places_of, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Chat, Podium

PLACED = f"{AGENTS / 'places.py'}:Placed"
PATH_LIMIT = 40
"""Of a workspace's path: a `#!` line may have 127 bytes, and a socket's path 107."""


@pytest.fixture(autouse=True)
def no_writer_is_left(tmp_path: Path) -> Iterator[None]:
    """End the process that an agent left behind if nobody else did."""
    yield
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((tmp_path / "started").read_text()), signal.SIGKILL)


@pytest.fixture(params=["fuse", "dir"])
def presented(request: pytest.FixtureRequest) -> Podium:
    """The command on a home whose service is up and presents workspaces in one of the ways."""
    podium: Podium = request.getfixturevalue("served" if request.param == "fuse" else "served_in_directories")
    return podium


def said(chat: Chat, text: str) -> list[str]:
    """What the agent answers: the id of its process first."""
    frames = chat.say(text)
    assert frames[-1]["type"] == "turn_end", frames[-1]
    return str(next(frame["text"] for frame in frames if frame["type"] == "message_end")).split()


def test_a_workspace_is_at_one_path_in_all_activations(presented: Podium) -> None:
    chat = presented.chat(PLACED, "a")
    _, leads, place, link = said(chat, "where")
    assert leads == "True"
    assert len(place) <= PATH_LIMIT
    assert Path(place).parent == places_of(presented.home)
    assert places_of(presented.home).stat().st_mode & 0o777 == 0o700
    said(chat, "script")
    presented("passivate", "placed/a")
    assert not os.path.lexists(place)
    pid, leads, again, other_link = said(chat, "where")
    assert (leads, again) == ("True", place)
    assert link != other_link, "it is the host's"
    assert said(chat, "run")[1:] == ["it", "runs"]
    os.kill(int(pid), signal.SIGKILL)
    assert said(chat, "where")[1:3] == ["True", place]
    chat.close()
    other = presented.chat(PLACED, "b")
    assert said(other, "where")[2] != place
    other.close()
    assert presented("verify").returncode == 0


@pytest.mark.parametrize("way", ["exec", "fork"])
def test_what_a_killed_activation_left_behind_writes_nothing_into_the_next_one(
    presented: Podium, tmp_path: Path, way: str
) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    chat = presented.chat(PLACED, f"killed-{way}")
    pid, *_ = said(chat, f"leave {way} {gate} {started}")
    writer = int(started.read_text())
    gate.touch()
    os.kill(int(pid), signal.SIGKILL)
    assert said(chat, "files")[1:] == ["said.txt"]
    assert not runs(writer)
    for _ in range(3):
        assert said(chat, "files")[1:] == ["said.txt"]
    chat.close()
    assert presented("verify").returncode == 0


def test_what_an_activation_left_behind_ends_with_it(served: Podium, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    chat = served.chat(PLACED, "ends")
    said(chat, f"leave exec {gate} {started}")
    writer = int(started.read_text())
    assert runs(writer)
    served("passivate", "placed/ends")
    assert not runs(writer)
    assert said(chat, "files")[1:] == ["said.txt"]
    chat.close()


def test_a_copy_of_a_home_whose_service_runs_is_refused(served: Podium, tmp_path: Path) -> None:
    chat = served.chat(PLACED, "refused")
    _, _, place, _ = said(chat, "where")
    copy = tmp_path / "copy"
    shutil.copytree(served.home, copy, symlinks=True)
    copied = type(served)(copy, {**served.environment, "PODIUM_TEST_HOME": str(copy)})
    refused = copied("run", PLACED, "--key", "refused", "--message", "where", check=False)
    assert refused.returncode == ExitCode.HOME_ERROR, refused.stderr
    assert str(copy / "id") in refused.stderr
    assert str(served.home) in refused.stderr
    (copy / "id").unlink()
    (_, _, elsewhere, _) = copied("run", PLACED, "--key", "refused", "--message", "where").stdout.split()
    assert elsewhere != place
    assert said(chat, "where")[2] == place, "the copy has left it alone"
    chat.close()
    copied.end()


def test_a_copy_whose_places_are_elsewhere_leaves_a_running_home_alone(served: Podium, tmp_path: Path) -> None:
    chat = served.chat(PLACED, "elsewhere")
    before = said(chat, "where")
    copy = tmp_path / "copy"
    shutil.copytree(served.home, copy, symlinks=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    surroundings = {"PODIUM_TEST_HOME": str(copy), "PODIUM_WORKSPACES": str(elsewhere)}
    copied = type(served)(copy, {**served.environment, **surroundings})
    ran = copied("run", PLACED, "--key", "elsewhere", "--message", "where")
    assert Path(ran.stdout.split()[2]).parent.parent == elsewhere
    assert runs(int(before[0]))
    assert os.path.lexists(before[2])
    assert said(chat, "where") == before
    chat.close()
    copied.end()
    assert served("verify").returncode == 0
