"""What hosts and the coordinator have of the store process beside the journal and the blobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.control.messages import framed, raise_error, read_message
from chronicle.errors import Unavailable
from chronicle.ids import MessageId
from chronicle.journal import record_wire
from coordinator.access.quotas import Quota
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from chronicle.control.calls import Calls
    from chronicle.journal.records import NewMessage
    from chronicle.workspace.port import TreeRef
    from coordinator.store.links import StoreLink
    from podium.turn.stream import Frame

__all__ = ["RemoteAsker", "RemoteDocuments", "RemoteRoots", "remote_quotas"]

_AGAIN_S: Final = 0.1
"""Pause before a question is sent to the next store process."""


class RemoteAsker:
    """A `podium.turn.ports.Asker` whose questions the store process sends, and waits for.

    Args:
        link: the host's.
        wake: has an agent that was asked check its inbox; it may be lost.
    """

    def __init__(self, link: StoreLink, wake: Callable[[Address], Awaitable[None]]) -> None:
        self._link = link
        self._wake = wake

    async def ask(
        self,
        asker: Address,
        receiver: Address,
        question: NewMessage,
        noticed: Callable[[Sequence[str]], None],
        admitted: Callable[[MessageId], None] = lambda _: None,
    ) -> tuple[str, Sequence[Frame]]:
        """Send a question, and wait until it is settled; see `podium.turn.ports.Asker`.

        When the store process dies meanwhile, the question is sent to the next one, which finds it in the inbox.
        """
        while True:
            try:
                return await self._asked(asker, receiver, question, noticed, admitted)
            except (OSError, asyncio.IncompleteReadError):  # also if too many wait at the socket
                await asyncio.sleep(_AGAIN_S)

    async def _asked(
        self,
        asker: Address,
        receiver: Address,
        question: NewMessage,
        noticed: Callable[[Sequence[str]], None],
        admitted: Callable[[MessageId], None],
    ) -> tuple[str, Sequence[Frame]]:
        reader, writer = await asyncio.open_unix_connection(self._link.socket)
        try:
            writer.write(framed({"op": "hello", **self._link.hello}))
            said = {"asker": str(asker), "receiver": str(receiver), "question": record_wire.dumps(question)}
            _value(await read_message(reader))
            writer.write(framed({"op": "ask", **said}))
            while True:
                match _value(await read_message(reader)):
                    case {"wake": str(address)}:
                        await self._wake(Address.parse(address))
                    case {"circle": [*circle]}:
                        noticed(circle)
                    case {"admitted": str(message_id)}:
                        admitted(MessageId(message_id))
                    case {"answer": [str(message_id), [*frames]]}:
                        return message_id, cast("Sequence[Frame]", frames)
                    case unknown:
                        raise Unavailable(f"the store process said {unknown!r}")
        finally:
            writer.close()


class RemoteDocuments:
    """The `coordinator.documents.Documents` of a home, for the coordinator."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def read(self, name: str) -> bytes | None:
        """See `Documents`."""
        return cast("bytes | None", self._calls.call("document", name=name))

    def write(self, name: str, data: bytes) -> None:
        """See `Documents`."""
        self._calls.call("put_document", name=name, data=data)

    def stamp(self, name: str) -> object:
        """See `Documents`."""
        return self.read(name)

    def place(self, name: str) -> str:
        """See `Documents`."""
        return f"the document {name} of the home"


class RemoteRoots:
    """Publishes the trees that the layers of this machine refer to, as a node's manager."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def publish(self, refs: Collection[TreeRef], damage: str = "") -> None:
        """See `coordinator.homes.node_roots.NodeRoots`."""
        self._calls.call("roots", refs=[(ref.tree_id, ref.oplog_id) for ref in refs], damage=damage)


def remote_quotas(calls: Calls) -> dict[str, Quota]:
    """Return the quotas of tenants as they are now.

    Raises:
        Unavailable: there is no answer.
    """
    found: dict[str, Any] = calls.call("quotas")
    return {tenant: Quota(**quota) for tenant, quota in found.items()}


def _value(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise_error(answer["error"])
    return answer["ok"]
