"""Homes with agents in them, made through the journal's and the blob store's own functions."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chronicle.blobs.buffer import BlobBuffer
from chronicle.canonical import encode
from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, NewMessage, Outcome, SetReminder, Settlement
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.history import path_histories
from chronicle.workspace.history.oplog import (
    Attr,
    Operation,
    add_root,
    encode_attr,
    first_root,
    put_commit,
    store_operations,
)
from chronicle.workspace.history.path_histories import Record
from chronicle.workspace.port import TreeRef
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind, update_tree
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from podium.address import Address
from podium.events import AGENT_CREATED, ASSISTANT_MESSAGE, TURN_COMMITTED, TURN_FAILED, USER_MESSAGE
from podium.reminders.plans import Plan
from podium.reminders.schedule import Cron, Every
from tests.usage import measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pytest

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import Json, JsonObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import InboxMessage, Lease, Session

__all__ = ["HomeMaker", "MadeAgent", "Podium", "set_reminders"]


class HomeMaker:
    """A home that is written to as its service would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        home = Home(path).create()
        self.store: JournalStore = home.journal()
        self.blobs: BlobStore = home.blobs()
        self.clock = ManualClock()
        self.ids = IdSource(random.Random(7))

    def agent(self, name: str) -> MadeAgent:
        """Create an agent, with a counter for its state."""
        return MadeAgent(self, name)

    def close(self) -> None:
        self.store.close()
        self.blobs.close()


def set_reminders(store: JournalStore, name: str, *more: SetReminder) -> None:
    """Set the reminders ``daily`` and ``soon`` of a sleeping agent, and others, as a turn of it would."""
    session = store.session(name)
    lease = store.acquire_lease(session.session_id, "host_1", 0, 1, takeover=True)
    changes = list(more)
    for reminder, rule, due_ms in (("soon", Every(90_000), 1_000), ("daily", Cron("0 9 * * *", "UTC"), 2_000)):
        body = Plan(Address.parse(name), rule, {"text": f"it is {reminder}"}).to_body()
        changes.append(SetReminder(reminder, due_ms, body))
    head = store.head(session.main_branch_id)
    note = Draft(IdSource().event(0), "note", None, head.turn, 0)
    commit = Commit(session.session_id, head, seal(head, [note]), lease.epoch, reminders=tuple(changes))
    store.commit(commit)
    store.release_lease(session.session_id, lease.epoch)


class MadeAgent:
    """One agent, and the lease under which its turns are committed."""

    def __init__(self, home: HomeMaker, name: str) -> None:
        self.home = home
        self.name = name
        now_ms = home.clock.now_ms()
        ids = home.ids
        address = Address.parse(name)
        self.session: Session = home.store.ensure_session(
            address.name, ids.session(now_ms), ids.branch(now_ms), now_ms, address.tenant
        )
        self.lease: Lease = home.store.acquire_lease(self.session.session_id, "host_1", now_ms, ttl_ms=15_000)
        self.count = 0
        self.ref: TreeRef | None = None
        self._oplog = first_root(now_ms * 1_000_000)
        self._names: dict[bytes, Attr] = {}
        created: JsonObject = {
            "agent": name,
            "entity_type": "counter",
            "version": 1,
            "state": {"count": 0},
            "tree_id": None,
            "oplog_id": None,
        }
        self._commit([self._draft(AGENT_CREATED, created, 0)])

    def sleep(self) -> None:
        """Release the lease."""
        self.home.store.release_lease(self.session.session_id, self.lease.epoch)

    def admit(self, text: str) -> InboxMessage:
        """Put a message into the inbox."""
        now_ms = self.home.clock.now_ms()
        message = NewMessage(self.home.ids.message(now_ms), encode({"text": text}), now_ms)
        self.home.store.admit(self.session.session_id, message)
        return self.home.store.message(message.message_id)

    def turn(self, text: str, files: Mapping[str, bytes | None] | None = None) -> None:
        """Handle a message: count it, echo it, and write or delete files."""
        message = self.admit(text)
        self.home.clock.advance(1)
        self.count += 1
        number = self.home.store.head(self.session.main_branch_id).turn + 1
        if files:
            self._write(number, files)
        said: JsonObject = {
            "message_id": message.message_id,
            "position": message.position,
            "sender": None,
            "message": {"text": text},
        }
        patch: list[Json] = [{"op": "replace", "path": "/count", "value": self.count}]
        committed: JsonObject = {
            "cause": "message",
            "state": {"entity_type": "counter", "version": 1, "patch": patch},
            **self._tree_keys(),
            "consumed": [message.message_id],
            "sent": [],
            "epoch": self.lease.epoch,
        }
        drafts = [
            self._draft(USER_MESSAGE, said, number, message.message_id),
            self._draft(ASSISTANT_MESSAGE, {"message_id": "rpl_1", "text": text}, number, message.message_id),
            self._draft(TURN_COMMITTED, committed, number, message.message_id),
        ]
        self._commit(drafts, Settlement(message.message_id, Outcome.CONSUMED))

    def fail(self, text: str) -> None:
        """Fail at a message once, and park it."""
        message = self.admit(text)
        failed: JsonObject = {
            "error": {"type": "ValueError", "message": "no"},
            "hook": "on_message",
            "attempt": 1,
            "message_id": message.message_id,
            "parked": True,
            **self._tree_keys(),
            "epoch": self.lease.epoch,
        }
        turn = self.home.store.head(self.session.main_branch_id).turn
        draft = self._draft(TURN_FAILED, failed, turn, message.message_id)
        self._commit([draft], Settlement(message.message_id, Outcome.PARKED))

    def _draft(self, kind: str, payload: JsonObject, turn: int, message_id: str | None = None) -> Draft:
        now_ms = self.home.clock.now_ms()
        return Draft(self.home.ids.event(now_ms), kind, payload, turn, now_ms, message_id, message_id)

    def _commit(self, drafts: list[Draft], *settled: Settlement) -> None:
        head = self.home.store.head(self.session.main_branch_id)
        events = seal(head, drafts)
        self.home.store.commit(Commit(self.session.session_id, head, events, self.lease.epoch, settled))

    def _tree_keys(self) -> dict[str, Json]:
        return {
            "tree_id": self.ref.tree_id if self.ref else None,
            "oplog_id": self.ref.oplog_id if self.ref else None,
        }

    def _write(self, turn: int, files: Mapping[str, bytes | None]) -> None:
        """Make a tree with the files changed, and a commit of the operation log for it."""
        buffer = BlobBuffer(self.home.blobs)
        now_ms = self.home.clock.now_ms()
        before = self._oplog
        entries: dict[bytes, Entry | None] = {}
        histories: dict[bytes, path_histories.PathHistory] = {}
        done: list[Operation] = []
        for seq, (name, data) in enumerate(files.items(), start=before.next_seq):
            path = name.encode(errors="surrogateescape")
            content = store_bytes(buffer, data) if data is not None else None
            entries[path] = Entry(Kind.FILE, 0o644, content=content) if content is not None else None
            known = path_histories.path_history(buffer, before.histories, path)
            number = known.last + 1 if known else 1
            op = "write" if content is not None else "delete"
            record = Record(number, seq, now_ms, op, turn, Kind.FILE, content)
            histories[path] = path_histories.append(buffer, known, [record])
            done.append(Operation(seq, now_ms, op, turn, path, number, record.size))
            self._names[path] = Attr(seq + 1, now_ms * 1_000_000, now_ms * 1_000_000)
        for path in list(entries):
            if entries[path] is not None and (parent := path.rpartition(b"/")[0]):
                entries.setdefault(parent, Entry(Kind.DIR, 0o755))
        tree_id = update_tree(buffer, self.ref.tree_id if self.ref else EMPTY, entries)
        commits = before.commits
        if self.ref is not None:
            commits = put_commit(buffer, commits, before.turn, self.ref)
        attributes = {path: encode_attr(attr) for path, attr in self._names.items() if b"/" not in path}
        root = type(before)(
            turn=turn,
            tree_id=tree_id,
            previous=self.ref.oplog_id if self.ref else None,
            root=Attr(1, now_ms, now_ms, below=nodes.update(buffer, None, attributes)),
            histories=path_histories.update(buffer, before.histories, histories),
            commits=commits,
            links=None,
            next_ino=before.next_ino + len(files),
            next_seq=before.next_seq + len(files),
            moved_seq=0,
            operations=store_operations(buffer, done),
            usage=measure(buffer, tree_id),
        )
        oplog_id = add_root(buffer, root)
        buffer.flush()
        self._oplog = root
        self.ref = TreeRef(tree_id, oplog_id)


class Podium:
    """Runs commands on a home.

    Args:
        url: that of its gateway, which the commands that can are given; empty to give all of them its directory.
    """

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str], url: str = "") -> None:
        self.home = home
        self.err = ""
        self._capsys = capsys
        self.url = url

    def __call__(self, *arguments: str, code: int = ExitCode.OK, home: Path | None = None) -> str:
        self._capsys.readouterr()
        at_url = self.url and home is None and arguments[0] not in OF_THIS_MACHINE
        ended = main([*arguments, *(["--url", self.url] if at_url else ["--home", str(home or self.home)])])
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert ended == code, captured.err
        return captured.out

    def json(self, *arguments: str, code: int = ExitCode.OK, home: Path | None = None) -> Any:
        return json.loads(self(*arguments, "--json", code=code, home=home))


OF_THIS_MACHINE = ("backup", "gc", "verify")
"""Commands whose tests are about the files of a home."""
PLACES = ("here", "at a URL")


@contextmanager
def podium_at(place: str, home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Podium]:
    """Run commands on a home as it is in this directory, or through a gateway; see `PLACES`."""
    if place == "here":
        yield Podium(home, capsys)
        return
    from tests.unit.coordinator.cli.cli_gateway import gateway_over

    with gateway_over(home) as url:
        yield Podium(home, capsys, url)
