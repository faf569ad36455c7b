"""The store process's socket: the journal and the blobs of a home, for the processes of this node that open neither.

Frames are those of `chronicle.control`; a connection has one request at a time. Each begins with ``hello {"caller",
"token"}``, answered by ``{"is_far"}``: the caller is a host, a node's manager or the coordinator
(`coordinator.store.links`). Then:

``journal {"method", "arguments"}``
    calls a method of the journal's port; arguments and answer are those of `chronicle.journal.record_wire`. A host has
    the methods that `coordinator.store.permits` lets it have. A commit or step that comes alone shares a transaction
    with those of other hosts, but for one with a snapshot; those that have gathered in a host have one together. The
    coordinator has all methods, and its leases get epochs of the home's generation.
``get {"ids"}``, ``put {"blobs"}``, ``missing {"ids"}``, ``sizes {"ids"}``
    of the blob store. `get` may answer with a part, at least one blob.
``ask {"asker", "receiver", "question"}``
    asks an agent for one of the host's agents, answered by ``{"wake"}`` whenever the receiver is to be woken,
    ``{"admitted"}`` with the question's id in its inbox, ``{"circle"}`` for a circle of agents that wait for each
    other, and at last ``{"answer"}``. Closing the connection ends the wait.
``roots {"refs", "damage"}``
    publishes the trees that the layers of this machine refer to (`coordinator.homes.node_roots`), for a node's manager.
``quotas {}``, ``document {"name"}``, ``put_document {"name", "data"}``
    of the records of the home, for the coordinator.
"""

from __future__ import annotations

import asyncio
import hmac
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.control.messages import answer_error, answer_ok, framed, read_message
from chronicle.errors import ChronicleError, InvalidInput, Unavailable
from chronicle.ids import BlobId
from chronicle.journal import record_wire
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.records import Commit, StepWrite
from chronicle.journal.remote import MAX_EVENTS
from chronicle.workspace.port import TreeRef
from coordinator.store.links import COORDINATOR, is_manager, token_of
from coordinator.store.permits import HostPermits
from coordinator.store.renewals import Renewals
from podium.address import Address
from podium.blocking import at_most, in_threads
from podium.errors import PodiumError
from podium.messages.asking import StoreAsker
from podium.tasks import joined_beside

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from chronicle.blobs.port import BlobStore
    from chronicle.control.messages import Message
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Head, NewMessage
    from coordinator.access.quotas import Quotas
    from coordinator.documents import Documents
    from coordinator.homes.node_roots import NodeRoots
    from podium.blocking import BlockingRunner

__all__ = ["StoreServer"]

_MAX_HELLO: Final = 4096
"""Bytes of a message before the caller is known."""
_MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of blobs in one answer, if there are several."""
_MAX_BLOBS: Final = 128
"""Blobs in one answer: so many chunks of a file at most are as long."""
_THREADS: Final = 16
"""Calls of the database and the bucket at once, beside the commits; as many as connections to the database."""

_OF_ONE_HOST: Final = 4
"""Of these, of one host, so that its slow reads leave threads for others; as many as a mount reads at once. Those of
the bucket are counted apart: while it answers nothing, the database is still read."""
_RENEWING: Final = 2
"""Threads for leases alone, which nothing else of a host may hold up."""

_log = structlog.stdlib.get_logger("coordinator.store")


@dataclass(slots=True)
class _Host:
    """A host that is connected."""

    permits: HostPermits
    run: BlockingRunner
    """Makes its calls of the database."""
    run_blobs: BlockingRunner
    """Those of the bucket."""
    connections: int = 0


class StoreServer:
    """Serves the stores of a home.

    Args:
        journal: the journal.
        blobs: the blob store, with this node's cache.
        documents: of the records of the home.
        roots: of this machine's directory.
        quotas: check what agents ask.
        ids: makes the ids of agents that are asked first.
        secret: callers prove their names with it.
        inbox_limit: messages that may be pending for one agent.
        least_epoch: returns the lowest epoch of a new lease; called before each.
    """

    def __init__(
        self,
        journal: JournalStore,
        blobs: BlobStore,
        documents: Documents,
        roots: NodeRoots,
        quotas: Quotas,
        ids: IdSource,
        secret: str,
        inbox_limit: int,
        least_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._documents = documents
        self._roots = roots
        self._quotas = quotas
        self._ids = ids
        self._secret = secret
        self._inbox_limit = inbox_limit
        self._least_epoch = least_epoch
        self._threads = ThreadPoolExecutor(_THREADS, "store")
        self._run = in_threads(self._threads)
        self._renewing = ThreadPoolExecutor(_RENEWING, "leases")
        self._run_leases = in_threads(self._renewing)
        self._committer = GroupCommitter(journal)
        self._renewals = Renewals(journal)
        self._hosts: dict[str, _Host] = {}
        """Those that are connected, by name."""
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve while the context lasts; at its end connections are closed, and what is queued is committed.

        Args:
            listener: a listening socket, which is closed at the end.
        """
        server = await asyncio.start_unix_server(self._serve, sock=listener)
        try:
            yield
        finally:
            server.close()
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await asyncio.to_thread(self._committer.close)
            self._threads.shutdown()
            self._renewing.shutdown()

    # -- connections ----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            await self._greet(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the server ends
        except Exception:  # noqa: BLE001  a damaged frame, or a bug, ends one connection
            _log.exception("connection_failed")
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await read_message(reader, _MAX_HELLO)
        caller, token = str(hello.get("caller")), str(hello.get("token"))
        if not hmac.compare_digest(token, token_of(self._secret, caller)):
            await _say(writer, answer_error(InvalidInput("the store process does not know this caller")))
            return
        await _say(writer, answer_ok({"is_far": self._blobs.is_far}))
        if caller == COORDINATOR:
            await _answer_all(reader, writer, self._of_coordinator)
            return
        if caller not in self._hosts:
            permits = HostPermits(self._journal, caller, self._renewals)
            run, run_blobs = (at_most(_OF_ONE_HOST, self._threads) for _ in range(2))
            self._hosts[caller] = _Host(permits, run, run_blobs)
        host = self._hosts[caller]
        host.connections += 1
        try:
            await _answer_all(reader, writer, partial(self._of_host, caller, host, reader, writer))
        finally:
            host.connections -= 1
            if not host.connections:
                del self._hosts[caller]

    # -- requests -------------------------------------------------------------------------------------------------

    async def _of_coordinator(self, request: Message) -> object:
        match request:
            case {"op": "journal", "method": str(method), "arguments": bytes(data)}:
                arguments, named = record_wire.loads(data)
                return record_wire.dumps(await self._run(self._any_call, method, arguments, named))
            case {"op": "quotas"}:
                return {tenant: asdict(quota) for tenant, quota in (await self._run(self._quotas.limited)).items()}
            case {"op": "document", "name": str(name)}:
                return await self._run(self._documents.read, name)
            case {"op": "put_document", "name": str(name), "data": bytes(data)}:
                return await self._run(self._documents.write, name, data)
            case _:
                return await self._of_blobs(request, self._run)

    def _any_call(self, method: str, arguments: Sequence[Any], named: dict[str, Any]) -> object:
        if method == "acquire_lease":
            named = {**named, "least_epoch": max(named.get("least_epoch", 0), self._least_epoch())}
        found = getattr(self._journal, method)(*arguments, **named)
        return list(islice(found, MAX_EVENTS)) if method == "events" else found

    async def _of_host(
        self, caller: str, host: _Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Message
    ) -> object:
        match request:
            case {"op": "journal", "method": str(method), "arguments": bytes(data)}:
                arguments, named = record_wire.loads(data)
                return record_wire.dumps(await self._call(host, method, arguments, named))
            case {"op": "ask", "asker": str(asker), "receiver": str(receiver), "question": bytes(data)}:
                question = record_wire.loads(data)
                asking = self._ask(host, Address.parse(asker), Address.parse(receiver), question, writer)
                async with joined_beside(reader.read(1), "watch-asker") as leaving, joined_beside(asking) as answer:
                    await asyncio.wait((leaving, answer), return_when=asyncio.FIRST_COMPLETED)
                    if not answer.done():
                        raise ConnectionResetError("the asker left")
                    return answer.result()
            case {"op": "roots", "refs": [*refs], "damage": str(damage)} if is_manager(caller):
                told = [TreeRef(BlobId(tree), BlobId(oplog)) for tree, oplog in refs]
                return await host.run(self._roots.publish, told, damage)
            case _:
                return await self._of_blobs(request, host.run_blobs)

    async def _call(self, host: _Host, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> object:
        match method, arguments:
            case "commit", (Commit() as commit,):
                return await self._written(host, commit)
            case "put_step", (session_id, step, epoch):
                return await self._written(host, StepWrite(session_id, step, epoch))
            case "commit_many", (writes,):
                return await host.run(_commit_many, self._journal, host.permits, writes)
            case "renew_leases" | "release_leases", _:
                return await self._run_leases(host.permits.call, method, arguments, named)
            case _:
                return await host.run(host.permits.call, method, arguments, named)

    async def _written(self, host: _Host, write: Commit | StepWrite) -> Head | None:
        if not host.permits.knows(write) or (isinstance(write, Commit) and (write.outbox or write.reminders)):
            await host.run(host.permits.check_write, write)
        if isinstance(write, Commit):
            if write.snapshot is not None:  # it may be large, and others would wait for its chunks
                return await host.run(self._journal.commit, write)
            return await self._committer.commit(write)
        await self._committer.put_step(write.session_id, write.step, write.epoch)
        return None

    async def _of_blobs(self, request: Message, run: BlockingRunner) -> object:
        match request:
            case {"op": "get", "ids": [*ids]}:
                return await run(self._get, ids)
            case {"op": "put", "blobs": dict(blobs)}:
                return await run(self._blobs.put, blobs)
            case {"op": "missing", "ids": [*ids]}:
                return list(await run(self._blobs.missing, ids))
            case {"op": "sizes", "ids": [*ids]}:
                return await run(self._blobs.sizes, ids)
            case _:
                raise InvalidInput(f"the store process has no {request.get('op')!r}, or not for this caller")

    def _get(self, ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the first ones of some blobs, as many as an answer may have."""
        found = self._blobs.get_many(ids[:_MAX_BLOBS])
        part: dict[BlobId, bytes] = {}
        size = 0
        for blob_id, data in found.items():
            size += len(data)
            if part and size > _MAX_ANSWER:
                break
            part[blob_id] = data
        return part

    # -- asking ---------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        host: _Host,
        asker: Address,
        receiver: Address,
        question: NewMessage,
        writer: asyncio.StreamWriter,
    ) -> object:
        await host.run(host.permits.check_question, asker, receiver, question)

        async def wake(address: Address) -> None:
            await _say(writer, answer_ok({"wake": str(address)}))

        def noticed(circle: Sequence[str]) -> None:
            writer.write(framed(answer_ok({"circle": list(circle)})))

        def admitted(message_id: MessageId) -> None:
            writer.write(framed(answer_ok({"admitted": message_id})))

        store_asker = StoreAsker(
            self._journal, self._blobs, self._ids, host.run, wake, self._inbox_limit, self._quotas.check_ask
        )
        return {"answer": await store_asker.ask(asker, receiver, question, noticed, admitted)}


def _commit_many(
    journal: JournalStore, permits: HostPermits, writes: Sequence[Commit | StepWrite]
) -> list[Head | Exception | None]:
    """Make writes that have gathered in a host, in one transaction; each is made or refused by itself."""
    refused: dict[int, Exception] = {}
    for number, write in enumerate(writes):
        try:
            permits.check_write(write)
        except ChronicleError as error:
            refused[number] = error
    made = iter(journal.commit_many([write for number, write in enumerate(writes) if number not in refused]))
    return [refused[number] if number in refused else next(made) for number in range(len(writes))]


async def _answer_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[[Message], Awaitable[object]]
) -> None:
    """Answer the requests of a connection, one after the other, until it ends."""
    while True:
        request = await read_message(reader)
        try:
            said = answer_ok(await answer(request))
        except (ChronicleError, PodiumError) as error:
            said = answer_error(error)
        except (ConnectionError, asyncio.IncompleteReadError):
            raise
        except Exception as error:  # noqa: BLE001  a request that cannot be read, or a bug
            _log.exception("request_failed", op=request.get("op"))
            said = answer_error(Unavailable(f"{type(error).__name__}: {error}"))
        await _say(writer, said)


async def _say(writer: asyncio.StreamWriter, message: Message) -> None:
    writer.write(framed(message))
    await writer.drain()
