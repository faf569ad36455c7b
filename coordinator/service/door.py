"""The door of a service: its protocol and its models, for gateways, commands and nodes of the same home elsewhere.

The document ``service`` of the home says where it is, with a secret that is made anew with each service. Its targets
are ``service``, as `Home.socket_path`, and ``models``, as `Home.models_socket`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.errors import ChronicleError, InvalidInput
from coordinator.door import Door, listening, piped_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from coordinator.documents import Documents
    from coordinator.door import DoorOptions, Serve

__all__ = ["no_door", "open_door", "published_door", "withdraw_door"]

_DOCUMENT: Final = "service"

_log = structlog.stdlib.get_logger(__name__)


def published_door(documents: Documents) -> Door | None:
    """Return the door of the service of a home as it was last told; ``None`` if there is none.

    Raises:
        Unavailable: the database cannot be reached.
    """
    data = documents.read(_DOCUMENT)
    found = json.loads(data) if data else {}
    return Door(**found) if found else None


def withdraw_door(documents: Documents) -> None:
    """Tell that the service has no door, also if one that was killed has told of its own.

    Raises:
        Unavailable: the database cannot be reached.
    """
    if published_door(documents) is not None:
        documents.write(_DOCUMENT, b"{}")


@asynccontextmanager
async def no_door(documents: Documents) -> AsyncIterator[None]:
    """Tell that there is no door, as `withdraw_door`, and listen nowhere while the context lasts."""
    await asyncio.to_thread(withdraw_door, documents)
    yield


@asynccontextmanager
async def open_door(options: DoorOptions, documents: Documents, serve: Serve, models: Path) -> AsyncIterator[Door]:
    """Listen, and tell where, while the context lasts.

    Args:
        serve: serves a connection to the service, and closes it.
        models: the socket of the model gateway.

    Raises:
        InvalidInput: as `coordinator.door.listening`.
    """

    async def find(asked: Mapping[str, Any]) -> Serve:
        match asked.get("to"):
            case "service":
                return serve
            case "models":
                return await piped_to(models)
            case unknown:
                raise InvalidInput(f"the caller wants to {unknown!r}")

    async with listening(options, secrets.token_hex(32), find) as door:
        await asyncio.to_thread(documents.write, _DOCUMENT, json.dumps(asdict(door)).encode())
        try:
            yield door
        finally:
            await asyncio.to_thread(_withdraw_own, documents, door)


def _withdraw_own(documents: Documents, door: Door) -> None:
    """Tell that the service has no door, unless the next one has told of its own."""
    try:
        if published_door(documents) == door:
            withdraw_door(documents)
    except ChronicleError as error:  # the next service says where its own is, or that it has none
        _log.warning("door_not_withdrawn", error=str(error))
