"""Parsing of clients' requests; :mod:`coordinator.service.protocol` describes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chronicle.blobs.ident import to_raw
from chronicle.canonical import encode
from chronicle.errors import InvalidInput
from chronicle.ids import BlobId
from chronicle.workspace.content.content import Content
from coordinator.fleet.model import Code
from podium.address import Address
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SentMessage", "address_in", "codes_in", "content_in", "message_in", "parse_request", "timeout_in"]


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message to admit."""

    address: Address
    code: Code | None
    """The code that the request names; ``None`` if it names the agent by its address only."""
    body: bytes
    """Canonical JSON."""
    idempotency_key: str | None
    when_busy: BusyPolicy


def parse_request(line: bytes) -> dict[str, Any]:
    """Parse a client's line.

    Raises:
        ValueError: it is not a request, and has no id for an answer.
    """
    request = json.loads(line)
    if not isinstance(request, dict) or "id" not in request:
        raise ValueError("a request must be a JSON object with an id")
    return request


def address_in(request: Mapping[str, Any]) -> Address:
    """Return the address in a request's ``agent``.

    Raises:
        InvalidAddress: it is not an address.
    """
    return Address.parse(str(request.get("agent")))


def message_in(request: Mapping[str, Any]) -> SentMessage:
    """Parse the message of a ``send`` or an ``admit``.

    Raises:
        InvalidInput: a part is missing or of a wrong type.
        InvalidAddress: the agent's type or key is invalid.
    """
    agent, key, message = request.get("agent"), request.get("key"), request.get("message")
    code = _code(agent) if isinstance(agent, dict) else None
    if code is not None and not isinstance(key, str):
        raise InvalidInput("'key' must be a string")
    if code is None and not isinstance(agent, str):
        raise InvalidInput("'agent' must be an address, or an object with the strings file, class and agent_type")
    if not isinstance(message, dict):
        raise InvalidInput(f'a message must be a JSON object such as {{"text": ...}}, not {type(message).__name__}')
    idempotency_key = request.get("idempotency_key")
    if not isinstance(idempotency_key, str | None):
        raise InvalidInput("'idempotency_key' must be a string or null")
    try:
        when_busy = BusyPolicy(request.get("when_busy") or BusyPolicy.ENQUEUE)
    except ValueError:
        raise InvalidInput(f"'when_busy' must be one of {', '.join(BusyPolicy)}") from None
    address = Address(code.agent_type, str(key)) if code is not None else address_in(request)
    return SentMessage(address, code, encode(message), idempotency_key, when_busy)


def codes_in(request: Mapping[str, Any]) -> list[Code]:
    """Return the codes of a ``register``.

    Raises:
        InvalidInput: a part is missing or of a wrong type.
    """
    agents = request.get("agents")
    if not isinstance(agents, list):
        raise InvalidInput("'agents' must be a list")
    return [_code(agent) for agent in agents]


def content_in(request: Mapping[str, Any]) -> Content | None:
    """Return the ``content`` of a request, which is in the blob store.

    Raises:
        InvalidInput: it is not one.
    """
    match request.get("content"):
        case None:
            return None
        case {"id": str(blob_id), "size": int(size), "chunked": bool(chunked)}:
            to_raw(BlobId(blob_id))
            return Content(BlobId(blob_id), size, chunked)
        case _:
            raise InvalidInput("'content' must be null, or an object with id, size and chunked")


def timeout_in(request: Mapping[str, Any]) -> float | None:
    """Return the ``timeout_s`` of a request.

    Raises:
        InvalidInput: it is not a positive number.
    """
    timeout_s = request.get("timeout_s")
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise InvalidInput("'timeout_s' must be a positive number of seconds")
    return float(timeout_s)


def _code(agent: object) -> Code:
    names = [agent.get(name) for name in ("file", "class", "agent_type")] if isinstance(agent, dict) else []
    file, class_name, agent_type = (*names, None, None, None)[:3]
    if not (isinstance(file, str) and isinstance(class_name, str) and isinstance(agent_type, str)):
        raise InvalidInput("an agent class must be an object with the strings file, class and agent_type")
    return Code(file, class_name, agent_type)
