"""A conversation as front ends show it: exchanges, each a message to the agent and what the agent said to it. Pure.

A message that a front end sent carries the front end's own ids in its body, under the key of its wire (`WIRES`). So
they are in the journal, are inherited by forks, and need no other table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from urllib.parse import quote

from podium.events import ARTIFACT_ADDED, ASSISTANT_MESSAGE, MESSAGE_ANSWERED, USER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["WIRES", "Exchange", "ExchangeStatus", "Item", "SentMessage", "TranscriptEvent", "client_id", "exchanges"]

WIRES: Final = ("ui", "ag_ui")
"""The keys under which a message's body has the ids of its front end."""

ExchangeStatus: TypeAlias = Literal["done", "pending", "parked"]


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that a front end sends."""

    wire: str
    """One of `WIRES`."""
    conversation: str
    """The front end's id of the chat or thread."""
    id: str
    """The front end's id of the message: within its conversation its idempotency key."""
    body: dict[str, Any]
    """Argument of the agent's ``on_message``."""

    @property
    def key(self) -> str:
        """The idempotency key of the first message of this id."""
        return f"{self.wire}:{quote(self.conversation, safe='')}/{self.id}"


@dataclass(frozen=True, slots=True)
class TranscriptEvent:
    """A visible event of an agent's transcript."""

    type: str
    turn: int
    message_id: str
    """The message that it belongs to; empty if it belongs to none."""
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that an agent said, or that happened while it did."""

    kind: Literal["text", "artifact", "steering"]
    id: str
    value: Mapping[str, Any]
    """Of a text ``text``; of an artifact its name, media type and size; of a steering message its body."""


@dataclass(slots=True)
class Exchange:
    """A message, and what the agent said to it."""

    message_id: str
    turn: int
    body: Mapping[str, Any]
    sender: str | None = None
    reminder: str | None = None
    """The name of the reminder that sent it."""
    items: list[Item] = field(default_factory=list)
    data: Any = None
    """The result that the agent set."""
    status: ExchangeStatus = "done"
    error: Mapping[str, str] | None = None
    """Why it is parked."""

    @property
    def id(self) -> str:
        """The id of its message for front ends."""
        return client_id(self.message_id, self.body)


def client_id(message_id: str, body: Mapping[str, Any]) -> str:
    """Return the id of a message for front ends: that of the front end that sent it, else one made of podium's id."""
    for wire in WIRES:
        match body.get(wire):
            case {"id": str(found)}:
                return found
    return f"{message_id}.in"


def exchanges(events: Iterable[TranscriptEvent]) -> list[Exchange]:
    """Return the exchanges of a transcript, in order.

    A message that steered the turn of another one is an item of that one's exchange, and so are the answers to it.
    """
    found: list[Exchange] = []
    of_message: dict[str, Exchange] = {}
    for event in events:
        payload = event.payload
        if event.type == USER_MESSAGE:
            last = found[-1] if found else None
            if last is not None and last.turn == event.turn and event.message_id != last.message_id:
                last.items.append(Item("steering", client_id(event.message_id, payload["message"]), payload["message"]))
                of_message[event.message_id] = last
                continue
            reminder = cast("Mapping[str, Any]", payload.get("reminder") or {})
            exchange = Exchange(
                event.message_id, event.turn, payload["message"], payload.get("sender"), reminder.get("name")
            )
            found.append(exchange)
            of_message[event.message_id] = exchange
            continue
        if (exchange_of := of_message.get(event.message_id)) is None:
            continue  # of a hook that handled no message
        if event.type == ASSISTANT_MESSAGE:
            exchange_of.items.append(Item("text", payload["message_id"], {"text": payload["text"]}))
        elif event.type == ARTIFACT_ADDED:
            exchange_of.items.append(Item("artifact", payload["artifact_id"], payload))
        elif event.type == MESSAGE_ANSWERED:
            exchange_of.data = payload["data"]
    return found
