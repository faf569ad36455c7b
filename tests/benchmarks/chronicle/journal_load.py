"""What the journal's benchmarks write: turns of 1.2 KB, as an agent's commits have them, and the floor to compare with.

As a program it is one of several processes that write to one journal: ``journal_load PATH NAME TURNS`` says ``ready``,
waits for a line, and says how many seconds its turns took.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.ids import IdSource, MessageId
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, NewMessage, Outcome, Settlement, Snapshot
from chronicle.journal.sqlite import SqliteJournalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.journal.port import JournalStore

__all__ = ["NEW_BYTES", "TURN_BYTES", "Agent", "floor", "text"]

TURN_BYTES = 1_200
"""New text in a turn: half of it the message, half the reply."""
NEW_BYTES = 2 * TURN_BYTES
"""What a turn adds: the text to the transcript, and the same to the state's history."""

_RANDOM = random.Random(1)
_IDS = IdSource(_RANDOM)
_now_ms = SystemClock().now_ms  # ids of one time would be spread over all of an index
_WORDS = ["".join(_RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=_RANDOM.randint(2, 9))) for _ in range(4_000)]


def text(size: int) -> str:
    """Return words of no meaning."""
    words: list[str] = []
    length = 0
    while length < size:
        words.append(_RANDOM.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[:size]


@contextmanager
def floor(path: Path) -> Iterator[Callable[[int], float]]:
    """Return what makes plain INSERTs of a turn's bytes, ``synchronous=FULL``, and says how many seconds they took."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE turn (id INTEGER PRIMARY KEY, bytes BLOB)")

        def inserts_s(count: int) -> float:
            rows = [text(TURN_BYTES).encode() for _ in range(count)]
            start = time.perf_counter()
            for row in rows:
                db.execute("INSERT INTO turn (bytes) VALUES (?)", (row,))
            return time.perf_counter() - start

        yield inserts_s


class Agent:
    """Commits turns of three events: message, reply, and the state's patch with a counter and a history."""

    def __init__(self, store: JournalStore, name: str) -> None:
        self.store = store
        self.session = store.ensure_session(name, _IDS.session(_now_ms()), _IDS.branch(_now_ms()), _now_ms())
        self.epoch = store.acquire_lease(self.session.session_id, "benchmark", 0, 1_000, takeover=True).epoch
        self.head = store.head(self.session.main_branch_id)
        self.history: list[str] = []
        self._since_snapshot = 0
        self._snapshot_size = 0

    def admit(self) -> MessageId:
        """Admit a message with a key, as a client sends it."""
        message = NewMessage(
            _IDS.message(_now_ms()), encode({"text": text(TURN_BYTES // 2)}), 1, _IDS.other("key_", _now_ms())
        )
        return self.store.admit(self.session.session_id, message).message_id

    def drafts(self, turn: int, message_id: MessageId) -> list[Draft]:
        """Return a turn's events."""
        asked, answered = text(TURN_BYTES // 2), text(TURN_BYTES // 2)
        patch = [
            {"op": "replace", "path": "/count", "value": turn},
            {"op": "add", "path": "/history/-", "value": asked + answered},
        ]
        payloads: list[tuple[str, dict[str, object]]] = [
            ("user_message", {"message_id": message_id, "position": turn, "sender": None, "message": {"text": asked}}),
            ("assistant_message", {"message_id": message_id, "text": answered}),
            (
                "turn.committed",
                {
                    "cause": "message",
                    "state": {"entity_type": "hello", "version": 1, "patch": patch},
                    "tree_id": None,
                    "oplog_id": None,
                    "consumed": [message_id],
                    "sent": [],
                    "epoch": self.epoch,
                },
            ),
        ]
        self.history.append(asked + answered)
        return [
            Draft(_IDS.event(_now_ms()), kind, payload, turn, 1_700_000_000_000 + turn, message_id, message_id)  # type: ignore[arg-type]
            for kind, payload in payloads
        ]

    def commit_of(self, drafts: list[Draft], message_id: MessageId | None = None, *, snapshots: bool = False) -> Commit:
        """Seal a turn; with a snapshot when it has grown by half since the last one."""
        events = seal(self.head, drafts)
        snapshot = None
        self._since_snapshot += TURN_BYTES
        if snapshots and self._since_snapshot > max(65_536, self._snapshot_size // 2):
            body = encode({"count": events[-1].turn, "history": self.history})
            self._since_snapshot, self._snapshot_size = 0, len(body)
            snapshot = Snapshot(self.head.branch_id, events[-1].seq, body)
        settled = (Settlement(message_id, Outcome.CONSUMED),) if message_id else ()
        return Commit(self.session.session_id, self.head, events, self.epoch, settled, snapshot=snapshot)

    def turns(self, count: int, *, snapshots: bool = False) -> list[float]:
        """Commit turns one after the other, and return the seconds that each took, admission not counted."""
        seconds = []
        for turn in range(self.head.turn + 1, self.head.turn + 1 + count):
            message_id = self.admit()
            drafts = self.drafts(turn, message_id)
            start = time.perf_counter()
            self.head = self.store.commit(self.commit_of(drafts, message_id, snapshots=snapshots))
            seconds.append(time.perf_counter() - start)
        return seconds


def write_when_told(path: Path, name: str, turns: int) -> None:
    """Be one of several processes that write."""
    store = SqliteJournalStore(path)
    agent = Agent(store, name)
    prepared = [agent.drafts(turn, _IDS.message(_now_ms())) for turn in range(1, turns + 1)]
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    for drafts in prepared:
        agent.head = store.commit(agent.commit_of(drafts))
    print(time.perf_counter() - start, flush=True)
    store.close()


if __name__ == "__main__":
    # Ids come from a seeded source: each process needs a seed of its own.
    _RANDOM.seed(sys.argv[2])
    write_when_told(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
