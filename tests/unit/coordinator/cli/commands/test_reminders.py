"""``podium reminders`` on a home whose service does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.ids import MessageId
from coordinator.cli.exits import ExitCode
from podium.reminders.delayed import DelayedMessage
from tests.unit.coordinator.cli.cli_home import PLACES, HomeMaker, Podium, podium_at, set_reminders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home with ``counter/a``, which has two reminders, and ``counter/b``, which has none."""
    maker = HomeMaker(tmp_path / "home")
    for name in ("counter/a", "counter/b"):
        maker.agent(name).sleep()
    set_reminders(maker.store, "counter/a")
    yield maker
    maker.close()


@pytest.fixture(params=PLACES)
def podium(request: pytest.FixtureRequest, made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Iterator[Podium]:
    with podium_at(request.param, made.path, capsys) as podium:
        yield podium


def test_reminders_are_listed(podium: Podium) -> None:
    headings, daily, soon = podium("reminders", "counter/a").splitlines()
    assert headings.split() == ["NAME", "DUE", "AGAIN", "MESSAGE"]
    assert daily.split() == [
        "daily",
        "1970-01-01T00:00:02.000Z",
        *["0", "9", "*", "*", "*", "(UTC)", "it", "is", "daily"],
    ]
    assert soon.split() == ["soon", "1970-01-01T00:00:01.000Z", *["every", "90", "s", "it", "is", "soon"]]
    assert podium.json("reminders", "counter/a") == {
        "agent": "counter/a",
        "reminders": [
            {
                "name": "daily",
                "due": 2000,
                "every_s": None,
                "cron": "0 9 * * *",
                "tz": "UTC",
                "to": None,
                "message": {"text": "it is daily"},
            },
            {
                "name": "soon",
                "due": 1000,
                "every_s": 90.0,
                "cron": None,
                "tz": None,
                "to": None,
                "message": {"text": "it is soon"},
            },
        ],
        "next_cursor": None,
        "remaining": 0,
    }
    assert podium("reminders", "counter/b") == ""
    assert podium.err == "counter/b has set no reminder\n"
    podium("reminders", "counter/c", code=ExitCode.UNKNOWN_AGENT)


def test_a_reminder_is_cancelled(podium: Podium) -> None:
    assert podium("reminders", "counter/a", "--cancel", "soon") == "soon is cancelled\n"
    podium("reminders", "counter/a", "--cancel", "soon", code=ExitCode.NOT_FOUND)
    assert podium.err == "podium: counter/a has no reminder 'soon'\n"
    assert podium.json("reminders", "counter/a", "--cancel", "daily") == {"agent": "counter/a", "name": "daily"}
    assert podium("reminders", "counter/a") == ""


def test_a_message_that_is_sent_later_is_listed_with_its_receiver_and_cancelled(
    made: HomeMaker, podium: Podium
) -> None:
    delayed = DelayedMessage(MessageId("msg_later"), "counter/b", {"text": "bring it back"}, 3_000, None)
    set_reminders(made.store, "counter/b", delayed.to_reminder())
    _, line, *_ = podium("reminders", "counter/b").splitlines()
    assert line.split() == [
        "msg_later",
        "1970-01-01T00:00:03.000Z",
        *["no,", "to", "counter/b", "bring", "it", "back"],
    ]
    found, *others = podium.json("reminders", "counter/b")["reminders"]
    assert (found["name"], found["to"], found["message"]) == ("msg_later", "counter/b", {"text": "bring it back"})
    assert [each["name"] for each in others] == ["daily", "soon"]
    assert podium("reminders", "counter/b", "--cancel", "msg_later") == "msg_later is cancelled\n"
    assert podium.json("reminders", "counter/b")["reminders"] == others
