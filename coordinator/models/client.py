"""`ModelClient`: makes calls of models through the socket of a home's model gateway. It imports no vendor's library.

Each call has a connection of its own, so that a slow reader delays itself only, and closing it ends the call. The
service of the home listens at the socket and starts the gateway when somebody connects, again after its death: until
then connections wait.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from coordinator.channel import PacketTooLong, pack, read_packet
from coordinator.models.calls import CallRecord
from coordinator.models.wire import object_of, read_answer, request_to_json
from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from coordinator.models.calls import ModelRequest
    from podium.models.port import LLMStreamChunk

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

__all__ = ["ModelClient"]

_START_S: Final = 60.0
"""Timeout of the first packet of an answer that needs no model: the gateway may have to be started first, by a busy
machine."""


async def _nowhere() -> Streams | None:
    return None


class ModelClient:
    """Makes calls through the model gateway of a home; a `coordinator.models.calls.ModelCalls`.

    Args:
        socket: the gateway's socket, `Home.models_socket`.
        elsewhere: opens a connection to a gateway on another machine, if there is none here; ``None`` if there is none
            there either.
    """

    def __init__(self, socket: Path, elsewhere: Callable[[], Awaitable[Streams | None]] = _nowhere) -> None:
        self._socket = socket
        self._elsewhere = elsewhere

    async def stream(self, request: ModelRequest) -> AsyncGenerator[LLMStreamChunk | CallRecord, None]:
        """Make a call; see `ModelCalls.stream`.

        Raises:
            ModelError: the call failed; ``unavailable`` if no service of the home runs, or the gateway died meanwhile.
        """
        async with self._connected({"op": "call", "request": request_to_json(request)}) as reader:
            while True:
                answer = read_answer(await _packet(reader))
                yield answer
                if isinstance(answer, CallRecord) and answer.status == "completed":
                    return

    async def profiles(self) -> JsonObject:
        """Return the profiles by name, each with ``provider``, ``model`` and ``fallbacks``.

        Raises:
            ModelError: the gateway cannot be reached.
        """
        return cast("JsonObject", (await self._ask("profiles"))["profiles"])

    async def metrics(self) -> object:
        """Return the gateway's metrics, as `coordinator.telemetry.snapshots.from_wire` reads them.

        Raises:
            ModelError: the gateway cannot be reached.
        """
        return (await self._ask("metrics"))["metrics"]

    async def process_id(self) -> int:
        """Return the id of the gateway's process, which is started if it does not run.

        Raises:
            ModelError: the gateway cannot be reached.
        """
        return cast("int", (await self._ask("ping"))["pid"])

    async def _ask(self, operation: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_START_S), self._connected({"op": operation}) as reader:
                return cast("dict[str, Any]", object_of(await _packet(reader)))
        except TimeoutError:
            raise _unavailable(f"it has not answered for {_START_S:g} s") from None

    @asynccontextmanager
    async def _connected(self, request: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
        try:
            packet = pack(request)
        except PacketTooLong as error:
            raise ModelError(f"the call is too long: {error}", "bad_request") from None
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError as error:
            found = await self._elsewhere()
            if found is None:
                raise _unavailable("no service of the home runs") from error
            reader, writer = found
        try:
            with suppress(ConnectionError):  # what the gateway said before is read nevertheless
                writer.write(packet)
                await writer.drain()
            yield reader
        finally:
            writer.close()


async def _packet(reader: asyncio.StreamReader) -> bytes:
    """Return the next packet.

    Raises:
        ModelError: the connection ended, or the packet is too long.
    """
    try:
        data = await read_packet(reader)
    except PacketTooLong as error:
        raise ModelError(f"the model gateway's answer is too long: {error}", "protocol") from error
    if data is None:
        raise _unavailable("it died during the call; what the call used is not known")
    return data


def _unavailable(why: str) -> ModelError:
    return ModelError(f"the model gateway cannot be reached: {why}", "unavailable")
