"""A home whose database is restored, or replaced by a standby, while agents are awake."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from chronicle.workspace.trees.tree import entry_at
from coordinator.home import Home
from podium.address import Address
from podium.agent_record import find_session
from tests.contract.postgres_server import new_postgres
from tests.e2e.conftest import AGENTS, Podium, fresh_home, text_of
from tests.e2e.servers import servers
from tests.s3_server import point_at
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PATIENT = f"{AGENTS / 'plain.py'}:Patient"


def failed_turns(podium: Podium, agent: str) -> list[dict[str, Any]]:
    """Return the payloads of the failed attempts of an agent."""
    with closing(Home(podium.home).open().journal(read_only=True)) as store:
        session = find_session(store, Address.parse(agent))
        events = store.events(session.main_branch_id, types=["turn.failed"])
        return [json.loads(event.payload or b"{}") for event in events]


def kept_file(podium: Podium, failed: dict[str, Any]) -> str:
    """Return what an agent's file had in a failed attempt."""
    with closing(Home(podium.home).open().blobs()) as blobs:
        entry = entry_at(blobs, failed["tree_id"], b"out.txt")
        assert entry is not None
        assert entry.content is not None
        return blobs.get(entry.content.id).decode()


def generations_raised(podium: Podium) -> int:
    """Return how often the service and the store process have raised the generation."""
    logs = [(podium.home / "logs" / name).read_text() for name in ("service.log", "store.log")]
    return sum(log.count("generation_raised") for log in logs)


def test_a_restore_while_agents_are_awake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers(tmp_path) as both, fresh_home(both.settings) as podium:
        point_at(monkeypatch, both.s3.endpoint, tmp_path / "cache")  # this process
        kept, longer, later = (podium.chat(PATIENT, key) for key in ("kept", "longer", "later"))
        for chat in (kept, longer, later):
            assert text_of(chat.say("one")).endswith(" 1")
        podium("passivate", "patient/later")
        both.postgres.back_up()
        for text, count in (("two", 2), ("three", 3)):
            assert text_of(longer.say(text)).endswith(f" {count}")
        assert text_of(later.say("two")).endswith(" 2"), "under a lease that the backup does not have"
        new = podium.chat(PATIENT, "new")
        assert text_of(new.say("one")).endswith(" 1"), "an agent that the backup does not have"
        both.postgres.stop()
        both.postgres.restore()
        both.postgres.start()
        assert text_of(kept.say("two")).endswith(" 2"), "it has lost nothing, and goes on"
        assert text_of(longer.say("four")).endswith(" 2"), "it goes on from what the database has"
        assert text_of(later.say("three")).endswith(" 2")
        assert text_of(new.say("two")).endswith(" 1")
        for chat in (kept, longer, later, new):
            assert chat.close() == 0
        assert failed_turns(podium, "patient/kept") == []
        for agent, words in (("longer", "lost turn 3"), ("later", "lost turn 2"), ("new", "lost turn 1")):
            [failed] = failed_turns(podium, f"patient/{agent}")
            assert words in failed["error"]["message"]
        assert kept_file(podium, failed_turns(podium, "patient/longer")[0]).startswith("4 four")
        verified = podium.json("verify")
        assert verified["ok"]
        assert verified["generation"]["number"] == 2
        assert "generation 2 of the home: turns that were answered before" in podium("verify").stdout
        assert generations_raised(podium) == 1


def test_a_standby_is_promoted_while_agents_are_awake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers(tmp_path) as both, new_postgres(both.postgres) as standby:
        hosts = quote(f"{both.postgres.host},{standby.host}")
        named = f"host={quote(both.postgres.host)}"
        url = both.settings["PODIUM_JOURNAL_URL"].replace(named, f"host={hosts}&target_session_attrs=read-write")
        settings = {**both.settings, "PODIUM_JOURNAL_URL": url}
        point_at(monkeypatch, both.s3.endpoint, tmp_path / "cache")
        standby.start()
        with fresh_home(settings) as podium:
            kept, longer = (podium.chat(PATIENT, key) for key in ("kept", "longer"))
            for chat in (kept, longer):
                assert text_of(chat.say("one")).endswith(" 1")
            wait_until(lambda: standby.has_all_of(both.postgres), "the standby did not follow")
            standby.kill()
            assert text_of(longer.say("two")).endswith(" 2"), "nobody waits for a standby that is not synchronous"
            both.postgres.kill()
            standby.start()
            standby.promote()
            assert text_of(kept.say("two")).endswith(" 2"), "it has lost nothing, and goes on"
            assert text_of(longer.say("three")).endswith(" 2"), "it goes on from what the standby had"
            for chat in (kept, longer):
                assert chat.close() == 0
            assert failed_turns(podium, "patient/kept") == []
            [failed] = failed_turns(podium, "patient/longer")
            assert "lost turn 2" in failed["error"]["message"]
            assert kept_file(podium, failed).startswith("3 three")
            verified = podium.json("verify")
            assert verified["ok"]
            assert verified["generation"]["number"] == 2
            assert "of timeline 2 of server" in verified["generation"]["why"]
            assert generations_raised(podium) == 1
        standby.stop_at_once()
        both.postgres.start()  # it is stopped in the end
