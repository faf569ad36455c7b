"""A database that answers nothing for a while: nobody takes the agents that wait for it for dead, or for blocking."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from tests.e2e.conftest import AGENTS, fresh_home
from tests.e2e.servers import servers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.servers import Servers

LIMIT_S = 1.0
"""After so many seconds a process hangs, or its code blocks others."""
SILENT_S = 3 * LIMIT_S


@contextmanager
def silent(both: Servers, waiting: int) -> Iterator[None]:
    """Have the database answer nothing about events to so many sessions, for `SILENT_S` from then on."""
    schema = both.settings["PODIUM_JOURNAL_URL"].rpartition("schema=")[2]
    count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        psycopg.connect(both.postgres.conninfo) as locking,
        psycopg.connect(both.postgres.conninfo, autocommit=True) as looking,
    ):
        locking.execute(f"LOCK TABLE {schema}.event IN ACCESS EXCLUSIVE MODE")
        yield
        wait_until(lambda: (looking.execute(count).fetchone() or (0,))[0] >= waiting, "nobody waits")
        time.sleep(SILENT_S)


def test_agents_outlive_it(tmp_path: Path) -> None:
    limits = {f"PODIUM_{name}_S": str(LIMIT_S) for name in ("HANG", "BLOCK_LIMIT")}
    with servers(tmp_path) as both, fresh_home({**both.settings, **limits, "PODIUM_SILENCE_S": "6"}) as podium:
        sharing, alone = f"{AGENTS / 'silenced.py'}:Sharing", f"{AGENTS / 'silenced.py'}:Alone"
        chats = [podium.chat(sharing, "awake"), podium.chat(alone, "awake"), podium.chat(sharing, "asleep")]
        before = [chat.say("one")[-1]["data"] for chat in chats]
        podium("passivate", "sharing/asleep")
        with silent(both, len(chats)):
            for chat in chats:
                chat.send("two")
        frames = [chat.until("turn_end", "error") for chat in chats]
        assert [each[-1]["data"] for each in frames] == [[pid, count + 1] for pid, count in before]
        assert not [frame for each in frames for frame in each if frame["type"] == "turn_retry"]
        for chat in chats:
            assert chat.close() == 0
