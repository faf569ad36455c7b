"""The store process's server: questions, ends of connections and of processes, and requests that cannot be read."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from chronicle.blobs.ident import blob_id
from chronicle.blobs.opening import open_blobs
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import encode
from chronicle.control.calls import Calls
from chronicle.control.connections import ControlClient
from chronicle.control.messages import LENGTH, Ended, answer_ok, framed
from chronicle.errors import InvalidInput, NotFound, Unavailable
from chronicle.ids import IdSource
from chronicle.journal import record_wire
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.records import NewMessage, Outcome, SetReminder, Settlement, Snapshot, StepWrite, StoredStep
from chronicle.journal.remote import remote_journal
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.blob_contract import named
from chronicle.testing.journal_contract import Writer
from coordinator.access.quotas import Quota
from coordinator.store.client import RemoteAsker, RemoteDocuments, remote_quotas
from coordinator.store.links import COORDINATOR, StoreAccess
from podium.address import Address
from podium.caller import Caller
from podium.errors import AskRefused, Evicted
from podium.messages.headers import Headers
from podium.reminders.plans import Plan
from podium.reminders.schedule import At
from podium.turn.journal.ledger import Ledger
from tests.contract.served_stores import SECRET, served, serving
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from chronicle.ids import BlobId, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Commit, Head, InboxMessage

IDS, NOW_MS = IdSource(), 1_700_000_000_000
HOST = "host_one"
ASKER, RECEIVER = Address("hello", "asker"), Address("hello", "receiver")
ROOT = Caller("key_root", frozenset({"admin"}), {"sub": "root"})
FORGED = Headers(caller=ROOT)
"""Of a message that a client sent itself."""


def question_of(text: str = "how?", key: str = "ask:1", **changes: Any) -> NewMessage:
    """Return a question of the asker."""
    given = {"sender": str(ASKER), **changes}
    return NewMessage(IDS.message(NOW_MS), encode({"text": text}), NOW_MS, key, **given)


def answer_all(store: JournalStore) -> bool:
    """Settle what waits for the receiver, as its turn would; return whether there was something."""
    try:
        writer = Writer.on(store, RECEIVER.name)
    except NotFound:
        return False
    waiting = store.pending(writer.session.session_id)
    for message in waiting:
        payloads: dict[str, JsonObject] = {"user_message": {}, "turn.committed": {"state": {"patch": []}}}
        drafts = [
            replace(writer.draft(kind, payload), correlation_id=message.message_id)
            for kind, payload in payloads.items()
        ]
        writer.write(*drafts, settled=(Settlement(message.message_id, Outcome.CONSUMED),))
    return bool(waiting)


class Wakes:
    """The wakes that an asker was told to make."""

    def __init__(self) -> None:
        self.of: list[Address] = []

    async def __call__(self, address: Address) -> None:
        self.of.append(address)


def nothing(_: Sequence[str]) -> None:
    """Notice no circle."""


def hold(store: JournalStore, host: str = HOST) -> Writer:
    """Have a host awake the asker."""
    writer = Writer.on(store, ASKER.name)
    store.acquire_lease(writer.session.session_id, host, NOW_MS, 60_000)
    return writer


async def test_a_question_is_put_by_the_server_and_its_answer_waited_for(tmp_path: Path) -> None:
    wakes = Wakes()
    with served(tmp_path) as (journal, _, access):
        hold(journal)
        admitted: list[str] = []
        asker = RemoteAsker(access.link(HOST), wakes)
        asking = asyncio.create_task(asker.ask(ASKER, RECEIVER, question_of(), nothing, admitted.append))
        await until(lambda: answer_all(journal), "no question came")
        message_id, frames = await asking
    assert frames[-1]["type"] == "turn_end"
    assert {frame["message_id"] for frame in frames} == {message_id}
    assert (wakes.of, admitted) == ([RECEIVER], [message_id])


@pytest.mark.parametrize(
    ("asker", "receiver", "question", "error"),
    [
        (RECEIVER, ASKER, question_of(sender=str(RECEIVER)), NotFound),
        (ASKER, replace(RECEIVER, tenant="acme"), question_of(), InvalidInput),
        (ASKER, RECEIVER, question_of(sender=str(RECEIVER)), InvalidInput),
        (ASKER, RECEIVER, question_of(headers=FORGED.to_json()), InvalidInput),
    ],
    ids=["for an agent of another host", "to another tenant", "in another name", "as if no agent had passed it on"],
)
async def test_a_host_asks_for_its_own_agents_only(
    tmp_path: Path, asker: Address, receiver: Address, question: NewMessage, error: type[Exception]
) -> None:
    with served(tmp_path) as (journal, _, access):
        hold(journal)
        Writer.on(journal, RECEIVER.name)
        with pytest.raises(error):
            await RemoteAsker(access.link(HOST), Wakes()).ask(asker, receiver, question, nothing)
        assert not journal.sessions_with_pending()


@pytest.mark.parametrize("many", [False, True], ids=["one commit", "a group of commits"])
def test_a_host_sets_reminders_through_its_agent_only(tmp_path: Path, *, many: bool) -> None:
    def reminder(name: str, caller: Caller | None) -> SetReminder:
        return SetReminder(name, NOW_MS, Plan(ASKER, At(), {"text": "do"}, caller=caller).to_body())

    with served(tmp_path) as (journal, _, access), closing(remote_journal(access.link(HOST).calls())) as remote:
        writer = hold(journal)
        lease = journal.lease(writer.session.session_id)
        assert lease is not None
        epoch = lease.epoch
        remote.put_step(writer.session.session_id, StoredStep(writer.admit(), 1, "step", b"{}"), epoch)  # it is known

        def write(given: SetReminder) -> None:
            commit = replace(writer.commit_of(reminders=(given,)), epoch=epoch)
            if many:
                [made] = remote.commit_many([commit])
                if isinstance(made, Exception):
                    raise made
            else:
                remote.commit(commit)

        for caller in (ROOT, ROOT.through(str(ASKER)).through(str(RECEIVER))):
            with pytest.raises(InvalidInput, match="as if it came through"):
                write(reminder("forged", caller))
        write(reminder("own", ROOT.through(str(RECEIVER)).through(str(ASKER))))
        assert [each.name for each in journal.reminders(writer.session.session_id)] == ["own"]


async def test_quotas_hold_for_questions(tmp_path: Path) -> None:
    limits = {"default": Quota(agents=1)}
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{tmp_path}/blobs")) as blobs,
        serving(journal, blobs, tmp_path, limits) as access,
    ):
        hold(journal)
        with pytest.raises(AskRefused, match="may have 1 agents"):
            await RemoteAsker(access.link(HOST), Wakes()).ask(ASKER, RECEIVER, question_of(), nothing)
        with closing(access.link(COORDINATOR).calls()) as calls:
            assert remote_quotas(calls) == limits
            documents = RemoteDocuments(calls)
            assert documents.read("a.json") is None
            documents.write("a.json", b"{}")
            assert documents.read("a.json") == b"{}"


def test_leases_get_epochs_of_the_generation(tmp_path: Path) -> None:
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{tmp_path}/blobs")) as blobs,
        serving(journal, blobs, tmp_path, least_epoch=1 << 32) as access,
        closing(remote_journal(access.link(COORDINATOR).calls())) as remote,
    ):
        session_id = Writer.on(journal).session.session_id
        assert remote.acquire_lease(session_id, HOST, NOW_MS, 60_000).epoch == 1 << 32
        assert remote.acquire_lease(session_id, HOST, NOW_MS, 60_000).epoch == (1 << 32) + 1


async def test_a_question_outlives_the_process(tmp_path: Path) -> None:
    """The next one finds it in the inbox, by its key, and goes on waiting."""
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{tmp_path}/blobs")) as blobs,
    ):
        hold(journal)
        with serving(journal, blobs, tmp_path) as access:
            asker = RemoteAsker(access.link(HOST), Wakes())
            asking = asyncio.create_task(asker.ask(ASKER, RECEIVER, question_of(), nothing))
            await until(lambda: bool(journal.sessions_with_pending()), "no question came")
        (tmp_path / "store.sock").unlink()
        with serving(journal, blobs, tmp_path):
            await asyncio.sleep(0.3)
            assert answer_all(journal)
            await asking
            assert not answer_all(journal), "it was put twice"


async def test_an_asker_that_leaves_ends_the_wait(tmp_path: Path) -> None:
    with served(tmp_path) as (journal, _, access):
        hold(journal)
        asking = asyncio.create_task(
            RemoteAsker(access.link(HOST), Wakes()).ask(ASKER, RECEIVER, question_of(), nothing)
        )
        await until(lambda: bool(journal.sessions_with_pending()), "no question came")
        asking.cancel()
        await asyncio.wait({asking})
        looks: list[MessageId] = []
        real = journal.message

        def look(message_id: MessageId) -> InboxMessage:
            looks.append(message_id)
            return real(message_id)

        vars(journal).update(message=look)

        def is_quiet() -> bool:
            looks.clear()
            time.sleep(0.3)  # looks come every tenth of a second at least
            return not looks

        await until(is_quiet, "the server still waits for the answer")


def test_a_wrong_token_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    with served(tmp_path) as (_, _, access):
        link = access.link(HOST)
        for hello in ({**link.hello, "caller": COORDINATOR}, {**link.hello, "token": ""}, {}, {"caller": HOST}):
            with (
                closing(Calls(tmp_path / "store.sock", hello)) as calls,
                pytest.raises(InvalidInput, match="does not know this caller"),
            ):
                calls.call("sizes", ids=[])
        with closing(link.calls()) as calls:
            assert calls.call("sizes", ids=[]) == {}


@pytest.mark.usefixtures("caplog")
def test_what_cannot_be_read_costs_its_request_or_its_connection_only(tmp_path: Path) -> None:
    with served(tmp_path) as (_, _, access), closing(access.link(HOST).calls()) as good:
        requests: tuple[dict[str, Any], ...] = (
            {"method": "head", "arguments": b"\xc1"},
            {"method": "head", "arguments": b"\x90"},
            {"method": 5},
            {"ids": "no list"},
        )
        for request in requests:
            with pytest.raises((InvalidInput, Unavailable)):
                good.call("journal" if "method" in request else "get", **request)
        for data in (
            b"\xff\xff\xff\xff",
            b"\x00\x00\x00\x01\xc1",
            framed({"op": "hello"})[:-1],
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.settimeout(60)
                raw.connect(str(tmp_path / "store.sock"))
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(1000):
                    pass
        assert good.call("sizes", ids=[]) == {}


def test_records_nested_without_end_are_refused(tmp_path: Path) -> None:
    """Each has a stack of MessagePack's own: they would end the process, of which all hosts of the node have need."""
    nested = record_wire.dumps([])
    for _ in range(300):
        nested = msgpack.packb(msgpack.ExtType(100, nested))
    with served(tmp_path) as (_, _, access), closing(access.link(HOST).calls()) as calls:
        with pytest.raises(InvalidInput, match="nested more than"):
            calls.call("journal", method="head", arguments=nested)
        assert calls.call("sizes", ids=[]) == {}


def full_listener(path: Path) -> socket.socket:
    """Listen, with as many connections as may wait."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    while True:
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.setblocking(False)
            try:
                waiting.connect(str(path))
            except BlockingIOError:
                return listener


def test_a_call_waits_for_room_at_the_socket(tmp_path: Path) -> None:
    with (
        full_listener(tmp_path / "store.sock") as listener,
        closing(Calls(tmp_path / "store.sock", {})) as calls,
        ThreadPoolExecutor(1) as pool,
    ):
        called = pool.submit(calls.call, "sizes")
        time.sleep(0.2)
        answered = 0
        while answered < 2 and not called.done():
            connection, _ = listener.accept()
            with connection:
                while answered < 2 and connection.recv(1000):
                    connection.sendall(framed(answer_ok("yes")))
                    answered += 1
        assert called.result() == "yes"


async def test_a_question_waits_for_room_at_the_socket(tmp_path: Path) -> None:
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{tmp_path}/blobs")) as blobs,
    ):
        hold(journal)
        link = StoreAccess(str(tmp_path / "store.sock"), SECRET).link(HOST)
        with full_listener(tmp_path / "store.sock"):
            asking = asyncio.create_task(RemoteAsker(link, Wakes()).ask(ASKER, RECEIVER, question_of(), nothing))
            await asyncio.sleep(0.2)
        (tmp_path / "store.sock").unlink()
        with serving(journal, blobs, tmp_path):
            await until(lambda: answer_all(journal), "no question came")
            await asking


@pytest.mark.usefixtures("caplog")
def test_a_caller_that_is_not_known_yet_sends_little(tmp_path: Path) -> None:
    with served(tmp_path), socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(60)
        raw.connect(str(tmp_path / "store.sock"))
        raw.sendall(LENGTH.pack(1 << 20))
        assert raw.recv(1000) == b"", "the server waits for a megabyte"


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("kind", ["commit", "step"])
async def test_a_write_of_which_answer_and_lease_are_lost_evicts(tmp_path: Path, kind: str) -> None:
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{tmp_path}/blobs")) as blobs,
    ):
        writer = Writer.on(journal, ASKER.name)
        lease = journal.acquire_lease(writer.session.session_id, HOST, NOW_MS, 60_000)
        writer.epoch = lease.epoch
        commit, step = writer.commit_of(), StoredStep(writer.admit(), 1, "step", b"{}")
        link = StoreAccess(str(tmp_path / "store.sock"), SECRET).link(HOST)
        with closing(remote_journal(link.calls())) as remote, closing(GroupCommitter(remote)) as committer:
            ledger = Ledger(remote, committer, writer.session, lease, writer.head)
            writing = ledger.append(commit) if kind == "commit" else ledger.put_step(step)
            appending = asyncio.ensure_future(writing)
            await asyncio.sleep(0.1)
            # As a process did that died before its answer.
            journal.commit_many([commit, StepWrite(commit.session_id, step, lease.epoch)])
            journal.acquire_lease(writer.session.session_id, "host_two", NOW_MS, 60_000, takeover=True)
            with serving(journal, blobs, tmp_path):
                with pytest.raises(Evicted):
                    await appending
                await asyncio.to_thread(committer.close)


def test_calls_go_on_with_the_next_process(tmp_path: Path) -> None:
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{tmp_path}/blobs")) as blobs,
        ExitStack() as stack,
    ):
        writer = hold(journal)
        with serving(journal, blobs, tmp_path) as access:
            store = stack.enter_context(closing(remote_journal(access.link(HOST).calls())))
            head = store.head(writer.head.branch_id)
        with pytest.raises(Unavailable):
            store.head(writer.head.branch_id)
        (tmp_path / "store.sock").unlink()
        with pytest.raises(Ended):
            store.head(writer.head.branch_id)
        with serving(journal, blobs, tmp_path):
            assert store.head(writer.head.branch_id) == head


def test_commits_of_threads_and_hosts_share_transactions(tmp_path: Path) -> None:
    with served(tmp_path) as (journal, _, access), ExitStack() as stack:
        threads, stores = [], []
        for number in range(8):
            writer = Writer.on(journal, f"hello/{number}")
            lease = journal.acquire_lease(writer.session.session_id, f"host_{number % 3}", NOW_MS, 60_000)
            writer.epoch = lease.epoch
            calls = stack.enter_context(closing(access.link(lease.holder).calls()))
            writer.store = remote_journal(calls)
            stores.append(writer)
            threads.append(threading.Thread(target=writer.turns, args=(20,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [journal.head(writer.head.branch_id).turn for writer in stores] == [20] * 8


def test_a_commit_with_a_snapshot_delays_no_other_host(tmp_path: Path) -> None:
    with served(tmp_path) as (journal, _, access), ExitStack() as stack:
        writers = []
        for number in range(2):
            writer = Writer.on(journal, f"hello/{number}")
            writer.epoch = journal.acquire_lease(writer.session.session_id, f"host_{number}", NOW_MS, 60_000).epoch
            writer.store = remote_journal(stack.enter_context(closing(access.link(f"host_{number}").calls())))
            writers.append(writer)
        real, begun, released = journal.commit, threading.Event(), threading.Event()
        waited: list[bool] = []

        def commit(commit: Commit) -> Head:
            if commit.snapshot is not None:
                begun.set()
                waited.append(released.wait(20))
            return real(commit)

        vars(journal).update(commit=commit)
        head = writers[0].head
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(writers[0].write, snapshot=Snapshot(head.branch_id, 1, b"{}"))
            assert begun.wait(60)
            writers[1].write()
            released.set()
            slow.result()
        assert waited == [True], "the other commit has waited"
        found = journal.snapshot(head.branch_id)
        assert found is not None
        assert found.seq == 1


async def test_a_group_of_a_host_succeeds_and_fails_each_by_itself(tmp_path: Path) -> None:
    with served(tmp_path) as (journal, _, access), closing(access.link(HOST).calls()) as calls:
        own, other = hold(journal), Writer.on(journal, RECEIVER.name)
        own.epoch = 1
        committer = GroupCommitter(remote_journal(calls))
        outcomes = await asyncio.gather(
            committer.commit(own.commit_of()),
            committer.commit(replace(other.commit_of(), epoch=1)),
            return_exceptions=True,
        )
        committer.close()
    assert [type(outcome).__name__ for outcome in outcomes] == ["Head", "StaleEpoch"]


def test_slow_reads_of_a_host_leave_room_for_others(tmp_path: Path) -> None:
    """One that has asked for more than the server has threads; each of its reads waits until the others' are made."""
    goes_on, slow = threading.Event(), [named(b"slow %d" % number) for number in range(32)]
    quick, waiting = named(b"quick"), threading.Semaphore(0)

    class SlowBlobs(PackBlobStore):
        def get_many(self, ids: Iterable[BlobId]) -> dict[BlobId, bytes]:
            wanted = list(ids)
            if wanted != list(quick):
                waiting.release()
                assert goes_on.wait(60)
            return super().get_many(wanted)

    blobs = SlowBlobs(f"file://{tmp_path / 'blobs'}")
    blobs.put({identifier: data for each in (*slow, quick) for identifier, data in each.items()})
    with (
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(blobs),
        serving(journal, blobs, tmp_path) as access,
        closing(access.link("host_greedy").calls()) as greedy,
        closing(access.link(HOST).calls()) as other,
        ThreadPoolExecutor(len(slow)) as pool,
    ):
        try:
            asked = [pool.submit(greedy.call, "get", ids=list(each)) for each in slow]
            for _ in range(4):
                assert waiting.acquire(timeout=60)
            for _ in range(100):
                assert other.call("get", ids=list(quick)) == quick
            with closing(remote_journal(access.link("host_greedy").calls())) as its_own:
                assert its_own.renew_leases([], NOW_MS, 60_000) == [], "nor do they keep its leases back"
            assert not any(each.done() for each in asked)
        finally:
            goes_on.set()
        assert [each.result(60) for each in asked] == slow


def test_many_and_large_blobs_come_in_several_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.store.server._MAX_ANSWER", 1000)
    monkeypatch.setenv("CHRONICLE_CACHE_BYTES", "0")
    blobs = named(*(b"%d" % number * (400 if number < 20 else 1) for number in range(300)))
    with served(tmp_path) as (_, own, access), closing(open_blobs(access.link(HOST).blobs_url)) as remote:
        own.put(blobs)
        assert remote.get_many([*blobs, next(iter(blobs))]) == blobs
        with pytest.raises(NotFound):
            remote.get_many([*blobs, blob_id(b"none")])


def test_calls_work_in_a_process_with_very_many_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        _, _, access = stack.enter_context(served(tmp_path))
        for _ in range(1_100):
            stack.enter_context(Path("/dev/null").open("rb"))
        calls = stack.enter_context(closing(access.link(HOST).calls()))
        assert [calls.call("sizes", ids=[]) for _ in range(3)] == [{}] * 3


def test_the_answer_of_a_call_that_was_interrupted_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as (journal, _, access), closing(access.link(HOST).calls()) as calls:
        writer, store = hold(journal), remote_journal(calls)
        head = store.head(writer.head.branch_id)

        def interrupt(*_: object) -> bytes:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ControlClient, "_receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.pending(writer.session.session_id)
        assert store.head(writer.head.branch_id) == head


def test_blobs_wait_for_a_process_that_is_started_again(tmp_path: Path) -> None:
    """Whoever owns its socket may have died, too, such as `podium node`: then nothing listens for a while."""
    data = named(b"kept")
    url = StoreAccess(str(tmp_path / "store.sock"), SECRET).link(HOST).blobs_url
    with (
        closing(PackBlobStore(f"file://{tmp_path / 'blobs'}")) as blobs,
        closing(SqliteJournalStore(tmp_path / "journal.db")) as journal,
        closing(open_blobs(url)) as remote,
        ThreadPoolExecutor(1) as threads,
    ):
        with serving(journal, blobs, tmp_path):
            remote.put(data)
        (tmp_path / "store.sock").unlink()
        waiting = threads.submit(remote.missing, list(data))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        with serving(journal, blobs, tmp_path):
            assert waiting.result(60) == set()


def test_blobs_do_not_wait_for_ever_for_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_STORE_PATIENCE_S", "0.2")
    url = StoreAccess(str(tmp_path / "store.sock"), SECRET).link(HOST).blobs_url
    with closing(open_blobs(url)) as remote, pytest.raises(Ended):
        remote.missing([])
