"""The model gateway's socket: one request a connection, as `coordinator.models.wire` describes it."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from chronicle.errors import ChronicleError, InvalidInput
from coordinator.channel import PacketTooLong, pack, read_packet
from coordinator.models.calls import CallRecord
from coordinator.models.wire import object_of, request_from_json
from coordinator.telemetry.snapshots import to_wire
from podium.models.codec import chunk_to_json, error_to_json
from podium.models.errors import ModelError
from podium.tasks import joined_beside

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from chronicle.canonical import JsonObject
    from coordinator.models.gateway import ModelGateway

__all__ = ["ModelServer"]

_log = structlog.stdlib.get_logger("coordinator.models")


class ModelServer:
    """Serves a model gateway.

    Args:
        gateway: makes the calls.
    """

    def __init__(self, gateway: ModelGateway) -> None:
        self._gateway = gateway
        self._connections: set[asyncio.Task[None]] = set()
        self._ending = False

    @asynccontextmanager
    async def listening(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve while the context lasts; at its end running calls fail, and are recorded.

        Args:
            listener: a listening socket, which is closed at the end.
        """
        server = await asyncio.start_unix_server(self._serve, sock=listener)
        try:
            yield
        finally:
            self._ending = True
            server.close()
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            if (data := await read_packet(reader)) is not None:
                await self._answer(data, reader, writer)
        except ConnectionError:
            pass  # the client left
        except PacketTooLong as error:
            await _say(writer, error=error_to_json(ModelError(f"the call is too long: {error}", "bad_request")))
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _answer(self, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = object_of(data)
            match asked.get("op"):
                case "call":
                    await self._call(asked, reader, writer)
                case "profiles":
                    await _say(writer, profiles=await self._gateway.profiles())
                case "metrics":
                    await _say(writer, metrics=to_wire(self._gateway.metrics()))
                case "ping":
                    await _say(writer, pid=os.getpid())
                case unknown:
                    raise InvalidInput(f"unknown operation {unknown!r}")
        except ModelError as error:
            await _say(writer, error=error_to_json(error))
        except InvalidInput as error:
            await _say(writer, error=error_to_json(ModelError(str(error), "bad_request")))
        except ConnectionError:
            raise
        except ChronicleError as error:
            _log.error("models_unavailable", error=str(error))
            await _say(writer, error=error_to_json(ModelError(str(error), "unavailable")))
        except Exception as error:  # noqa: BLE001  a bug: told to the caller, with its traceback in the log
            _log.exception("call_failed")
            await _say(writer, error=error_to_json(ModelError(f"{type(error).__name__}: {error}", "unavailable")))

    async def _call(self, asked: JsonObject, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make a call, and end it if the client closes the connection."""
        request = request_from_json(asked.get("request"))
        calling = asyncio.current_task()
        assert calling is not None
        client_left = False

        def leave(_: object) -> None:
            nonlocal client_left
            client_left = True
            calling.cancel()

        async with joined_beside(reader.read(1), "watch-client") as watching:
            watching.add_done_callback(leave)
            try:
                async with aclosing(self._gateway.stream(request)) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, CallRecord):
                            await _say(writer, record=chunk.to_json())
                        else:
                            await _say(writer, chunk=chunk_to_json(chunk))
            except asyncio.CancelledError:
                if self._ending and not client_left:
                    ended = ModelError("the model gateway ends with the service of the home", "unavailable")
                    await _say(writer, error=error_to_json(ended))
                raise
            finally:
                watching.remove_done_callback(leave)


async def _say(writer: asyncio.StreamWriter, **answer: Any) -> None:
    writer.write(pack(answer))
    await writer.drain()
