"""`AgentContext`: what a hook can do.

A context belongs to one turn. What it collects (replies, emitted events) is committed with the turn or dropped with
it; tokens reach the client as they are produced, before the commit, and are taken back by a retry's ``turn_start``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Generic

from typing_extensions import TypeVar

from chronicle.errors import InvalidInput
from podium.address import Address
from podium.agent.models.delta_state import DeltaState
from podium.agent.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import structlog

    from chronicle.canonical import JsonObject
    from chronicle.workspace.port import Iteration
    from podium.turn.scope import TurnScope

__all__ = ["AgentContext", "Reply"]

S = TypeVar("S", bound=DeltaState, default=Any)


class AgentContext(Generic[S]):
    """One turn, as the agent sees it.

    Attributes:
        state: what the agent remembers; changes are tracked and committed with the turn. It may be changed by the hook,
            its tasks and what it runs by ``asyncio.to_thread``, until the hook returns; any other change raises
            `podium.state.OutsideTurn`.
        workspace: the agent's directory, at the same path in each activation; ``$AGENT_WORKSPACE`` is the same in
            process isolation. What that variable was while the agent's file was imported is for this activation only.
        turn: the number this turn gets when it commits; from 1.
    """

    state: S

    def __init__(self, scope: TurnScope, address: Address, state: S, workspace: Path) -> None:
        self._scope = scope
        self._address = address
        self.state = state
        self.workspace = workspace
        self.turn = scope.turn

    @cached_property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A structured logger, bound to agent and turn."""
        import structlog  # noqa: PLC0415  it takes as long to import as all else that an agent's file needs

        logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("podium.agent")
        return logger.bind(agent_id=str(self._address), turn=self.turn)

    @property
    def agent_id(self) -> str:
        """The agent's address, ``type/key``."""
        return str(self._address)

    @property
    def key(self) -> str:
        """The second part of the address."""
        return self._address.key

    @property
    def message_id(self) -> str | None:
        """The id of the message being handled; ``None`` in other hooks."""
        return self._scope.message_id

    @property
    def sender(self) -> str | None:
        """The address of the agent that sent the message with `tell`; ``None`` for a client's, and in other hooks."""
        return self._scope.sender

    async def send_message(self, text: str = "") -> Reply:
        """Begin a reply to the client.

        Args:
            text: its first piece; empty to stream all of it.

        Returns:
            the reply, to be continued with ``stream_token``.

        Raises:
            PodiumError: the turn is over.
        """
        reply = self._scope.new_reply()
        await self._scope.publish({"type": "message_start", "reply_id": reply.reply_id})
        if text:
            await reply.stream_token(text)
        return reply

    async def emit(self, name: str, data: JsonObject | None = None) -> None:
        """Send the client an event of the agent's own at once. It is not part of the record.

        Args:
            name: what happened, such as ``progress``.
            data: a JSON object.

        Raises:
            InvalidInput: ``data`` is not JSON.
            PodiumError: the turn is over.
        """
        await self._scope.emit(name, data or {})

    async def tell(self, agent: str, message: JsonObject) -> str:
        """Send a message to another agent, as part of this turn.

        It is delivered after the turn is committed, and not at all if the turn fails; at least once, and the receiver
        drops repeats. The receiver need not exist yet. It finds this agent's address in ``ctx.sender``.

        The receiver is woken when the service knows its class, which ``podium run`` names for an agent of its type. A
        message to an address of a type that was not named since the service started waits in the inbox of that
        address; so does one to an address with a typing error in it. `podium inbox` shows what waits.

        Args:
            agent: the receiver's address, ``type/key``.
            message: a JSON object, what its ``on_message`` is given.

        Returns:
            the message's id.

        Raises:
            InvalidAddress: ``agent`` is no address.
            InvalidInput: ``message`` is not a JSON object.
            PodiumError: the turn is over.
        """
        if not isinstance(message, dict):
            raise InvalidInput(f"tell takes a dict, not {type(message).__name__}")
        return self._scope.tell(self._address, Address.parse(agent), message)

    async def add_artifact(self, name: str, data: bytes | str | Path, media_type: str | None = None) -> str:
        """Hand out a named piece of content, as part of this turn: a report, an image, a data set.

        It is there when the turn is committed, and not at all if the turn fails; it never changes, and is found by its
        id for as long as the turn is kept. The client is told of it at once. Each call makes an artifact of its own,
        under a name that was used before as well.

        Cancelling the call adds nothing.

        Args:
            name: what to call it, such as ``report.pdf``; without ``/``, at most 255 bytes.
            data: its bytes; or a text, which is stored as UTF-8; or a ``Path`` of a file in the workspace, relative to
                it or whole, which is read as it is now. A file is not held in memory. One that is written to meanwhile
                gives a mixture.
            media_type: what it is, such as ``text/csv``; without it the name tells.

        Returns:
            the artifact's id, ``art_…``.

        Raises:
            InvalidInput: the name or media type cannot be used, the path is not a file in the workspace, or the content
                is larger than the class's ``max_artifact_bytes``.
            OSError: the file cannot be read.
            PodiumError: the turn is over.
            Unavailable: the blob store could not be reached.
        """
        return await self._scope.add_artifact(name, data, media_type)

    def idempotency_key(self, name: str) -> str:
        """Return a key for a call to the outside that stays the same when this message is handled again.

        Args:
            name: tells several calls of one turn apart.
        """
        return f"{self.agent_id}:{self._scope.message_id or f'turn-{self.turn}'}:{name}"

    async def history(self, path: str) -> Sequence[Iteration]:
        """Return the iterations of a path of the workspace, oldest first, in whatever presentation.

        Raises:
            NotFound: the path never existed.
        """
        return await self._scope.history(path)

    async def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path of the workspace as it was at an iteration.

        Raises:
            NotFound: no such path or iteration, or it is a deletion.
        """
        return await self._scope.at(path, iteration)
