"""The agents of a home for callers that do not get the texts of errors (the setting `error_details`).

What agents' code raises, and what models answer, may hold what only operators are to know: such a caller gets the type
of an error, and the id of the message under which operators find its text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from coordinator.operations.agents import HomeAgents
from coordinator.streams.public_texts import text_of_model, without_text
from podium.events import TURN_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.frontends.conversation import Exchange
    from coordinator.operations import objects
    from coordinator.operations.model_calls import ModelCallObject, ModelCallPage
    from podium.address import Address

__all__ = ["DiscreetAgents", "without_text_of"]

_HIDDEN = "operators get the text, by podium why"


class DiscreetAgents(HomeAgents):
    """The same agents, with errors without their texts.

    Args:
        agents: whose stores and link are shared; their owner closes them.
    """

    shows_error_texts = False

    def __init__(self, agents: HomeAgents) -> None:
        vars(self).update(vars(agents))

    async def message(self, address: Address, message_id: str) -> objects.MessageObject:
        """As of `HomeAgents`, without the text of its error."""
        found = await super().message(address, message_id)
        return {**found, "error": _without(found["error"], message_id)}

    async def inbox(self, address: Address, limit: int = 100, cursor: str | None = None) -> objects.InboxPage:
        """As of `HomeAgents`, without the texts of the errors."""
        page = await super().inbox(address, limit, cursor)
        items = page["items"]
        return {**page, "items": [{**each, "error": _without(each["error"], each["message_id"])} for each in items]}

    async def why(self, address: Address) -> objects.WhyObject:
        """As of `HomeAgents`, without the texts of the errors."""
        found = await super().why(address)
        secrets = [text for text in (found["problem"], found["wake_error"]) if text]
        waits_for = found["waits_for"]
        for text in secrets:
            waits_for = waits_for.replace(text, _HIDDEN)
        last = found["last_error"]
        return {
            **found,
            "waits_for": waits_for,
            "problem": _HIDDEN if found["problem"] else None,
            "wake_error": _HIDDEN if found["wake_error"] else None,
            "last_error": cast("Any", {**last, **without_text(last, last["message_id"])}) if last is not None else None,
        }

    async def events(
        self,
        address: Address,
        *,
        after_seq: int = 0,
        types: Sequence[str] = (),
        limit: int = 100,
        cursor: str | None = None,
    ) -> objects.EventPage:
        """As of `HomeAgents`, without the texts of the errors of failed turns."""
        page = await super().events(address, after_seq=after_seq, types=types, limit=limit, cursor=cursor)
        return {**page, "items": [_event(each) for each in page["items"]]}

    async def model_calls(
        self, tenant: str, owner: str | None, profile: str | None, limit: int = 100, cursor: str | None = None
    ) -> ModelCallPage:
        """As of `HomeAgents`, without the texts of the errors."""
        page = await super().model_calls(tenant, owner, profile, limit, cursor)
        return {**page, "items": [_call(each) for each in page["items"]]}


def without_text_of(exchange: Exchange) -> Exchange:
    """Return an exchange without the text of its error."""
    return replace(exchange, error=_without(exchange.error, exchange.message_id))


def _event(event: objects.EventObject) -> objects.EventObject:
    payload = cast("Any", event["payload"])
    if event["type"] != TURN_FAILED or payload is None:
        return event
    error = without_text(payload["error"], payload["message_id"])
    return cast("objects.EventObject", {**event, "payload": {**payload, "error": error}})


def _call(call: ModelCallObject) -> ModelCallObject:
    error = call["error"]
    if error is not None:
        error = {**error, "message": text_of_model(error["kind"], error["message"])}
    attempts = [
        {**each, "error": (each["error"] or "").partition(":")[0] or None}  # its kind
        for each in call["attempts"]
    ]
    return {**call, "error": error, "attempts": attempts}


def _without(error: Mapping[str, Any] | None, message_id: str) -> Any:
    return without_text(error, message_id) if error is not None else None
