"""Parsing of clients' requests; :mod:`coordinator.service.protocol` describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chronicle.blobs.ident import to_raw
from chronicle.canonical import encode_input
from chronicle.errors import InvalidInput
from chronicle.ids import BlobId
from chronicle.workspace.content.content import Content
from coordinator.channel import from_json
from coordinator.registry.registry import RegisteredAgent
from coordinator.telemetry.traceparent import read_traceparent
from podium.address import Address
from podium.caller import NOBODY, Caller
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "SentMessage",
    "address_in",
    "addresses_in",
    "content_in",
    "message_in",
    "parse_request",
    "switch_in",
    "timeout_in",
]


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message to admit."""

    address: Address
    agent: RegisteredAgent | None
    """The class that the request names; ``None`` if it names the agent by its address only."""
    body: bytes
    """Canonical JSON."""
    idempotency_key: str | None
    when_busy: BusyPolicy
    trace: str | None
    """The ``traceparent`` of what sends it; ``None`` if it is none that can be read."""
    caller: Caller
    """Who asks; nobody if the client does not say who."""


def parse_request(data: bytes) -> dict[str, Any]:
    """Parse a client's packet.

    Raises:
        InvalidInput: it is not a request.
    """
    request = from_json(data)
    if not isinstance(request, dict) or "id" not in request:
        raise InvalidInput("a request must be a JSON object with an id")
    return request


def address_in(request: Mapping[str, Any]) -> Address:
    """Return the address in a request's ``agent``.

    Raises:
        InvalidAddress: it is not an address.
    """
    return Address.parse(str(request.get("agent")))


def addresses_in(request: Mapping[str, Any]) -> list[Address]:
    """Return the addresses in a request's ``agents``.

    Raises:
        InvalidInput: it is not a list.
        InvalidAddress: it has something else than addresses.
    """
    agents = request.get("agents")
    if not isinstance(agents, list):
        raise InvalidInput("'agents' must be a list of addresses")
    return [Address.parse(str(agent)) for agent in agents]


def message_in(request: Mapping[str, Any]) -> SentMessage:
    """Parse the message of a ``send`` or an ``admit``.

    Raises:
        InvalidInput: a part is missing or of a wrong type.
        InvalidAddress: the agent's type or key is invalid.
    """
    agent, key, message = request.get("agent"), request.get("key"), request.get("message")
    named = RegisteredAgent.from_wire(agent) if isinstance(agent, dict) else None
    if named is not None and not isinstance(key, str):
        raise InvalidInput("'key' must be a string")
    if named is None and not isinstance(agent, str):
        raise InvalidInput("'agent' must be an address, or an object with the strings file, class and agent_type")
    if not isinstance(message, dict):
        raise InvalidInput(f'a message must be a JSON object such as {{"text": ...}}, not {type(message).__name__}')
    idempotency_key = request.get("idempotency_key")
    if not isinstance(idempotency_key, str | None):
        raise InvalidInput("'idempotency_key' must be a string or null")
    if idempotency_key is not None and not _is_storable(idempotency_key):
        raise InvalidInput("'idempotency_key' must have no zero characters and no lone surrogates")
    try:
        when_busy = BusyPolicy(request.get("when_busy") or BusyPolicy.ENQUEUE)
    except ValueError:
        raise InvalidInput(f"'when_busy' must be one of {', '.join(BusyPolicy)}") from None
    address = Address(named.agent_type, str(key)) if named is not None else address_in(request)
    trace = read_traceparent(request.get("trace"))
    caller = Caller.from_json(request.get("caller")) or NOBODY
    return SentMessage(address, named, encode_input(message), idempotency_key, when_busy, trace, caller)


def switch_in(request: Mapping[str, Any], name: str) -> bool | None:
    """Return a boolean of a request; ``None`` if it is absent or null.

    Raises:
        InvalidInput: it is of another type.
    """
    value = request.get(name)
    if not isinstance(value, bool | None):
        raise InvalidInput(f"{name!r} must be true or false")
    return value


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


def _is_storable(text: str) -> bool:
    return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)
