"""The agents of a home for callers that are no administrators.

They are not told who has asked an agent before them. With the setting `error_details` they do not get the texts of
errors, either: what agents' code raises, and what models answer, may hold what only operators are to know. Then a
caller gets the type of an error, and the id of the message under which operators find its text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinator.operations.agents import HomeAgents
from coordinator.service.client import ServiceRefused
from coordinator.streams.public_texts import text_of_model, without_text
from podium.errors import ReadFailed
from podium.events import TURN_FAILED, USER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.frontends.conversation import Exchange
    from coordinator.operations import objects
    from coordinator.operations.model_calls import ModelCall
    from podium.address import Address

__all__ = ["DiscreetAgents", "PrivateAgents", "without_text_of"]

_HIDDEN = "operators get the text, by podium why"


class PrivateAgents(HomeAgents):
    """The same agents, with messages without their callers: keys, scopes and claims of other people's tokens.

    Args:
        agents: whose stores and link are shared; their owner closes them.
    """

    def __init__(self, agents: HomeAgents) -> None:
        vars(self).update(vars(agents))

    async def difference(
        self, address: Address, before: int | None, after: int | None, other: Address | None
    ) -> objects.Difference:
        """As of `HomeAgents`, without the callers of messages."""
        found = await super().difference(address, before, after, other)
        transcript = found.transcript
        removed, added = (
            tuple({**event, "payload": event["payload"] and _without_caller(event["payload"])} for event in side)
            for side in (transcript.removed, transcript.added)
        )
        return replace(found, transcript=replace(transcript, removed=removed, added=added))

    def _shown(self, event: objects.Event) -> objects.Event:
        if event.type != USER_MESSAGE or event.payload is None:
            return event
        return replace(event, payload=_without_caller(event.payload))


class DiscreetAgents(PrivateAgents):
    """The same agents, with errors without their texts.

    Args:
        agents: whose stores and link are shared; their owner closes them.
    """

    shows_error_texts = False

    async def message(self, address: Address, message_id: str) -> objects.Message:
        """As of `HomeAgents`, without the text of its error."""
        found = await super().message(address, message_id)
        return replace(found, error=_error(found.error, message_id))

    async def read_only(self, address: Address, message: dict[str, Any]) -> objects.ReadResult:
        """As of `HomeAgents`, without the text of what a handler raised."""
        try:
            return await super().read_only(address, message)
        except ServiceRefused as error:
            if error.kind != ReadFailed.__name__:
                raise
            raise ServiceRefused(error.kind, "the handler failed; operators find why in the agent's log") from None

    async def inbox(
        self, address: Address, limit: int = 100, cursor: str | None = None
    ) -> objects.Page[objects.InboxMessage]:
        """As of `HomeAgents`, without the texts of the errors."""
        page = await super().inbox(address, limit, cursor)
        return replace(page, items=[replace(each, error=_error(each.error, each.message_id)) for each in page.items])

    async def why(self, address: Address) -> objects.Why:
        """As of `HomeAgents`, without the texts of the errors."""
        found = await super().why(address)
        secrets = [text for text in (found.problem, found.wake_error) if text]
        waits_for = found.waits_for
        for text in secrets:
            waits_for = waits_for.replace(text, _HIDDEN)
        last = found.last_error
        if last is not None:
            last = replace(last, message=_text(last.type, last.message, last.message_id))
        return replace(
            found,
            waits_for=waits_for,
            problem=_HIDDEN if found.problem else None,
            wake_error=_HIDDEN if found.wake_error else None,
            last_error=last,
        )

    def _shown(self, event: objects.Event) -> objects.Event:
        payload = event.payload
        if event.type != TURN_FAILED or payload is None:
            return super()._shown(event)
        return replace(event, payload={**payload, "error": without_text(payload["error"], payload["message_id"])})

    async def model_calls(
        self, tenant: str, owner: str | None, profile: str | None, limit: int = 100, cursor: str | None = None
    ) -> objects.Page[ModelCall]:
        """As of `HomeAgents`, without the texts of the errors."""
        page = await super().model_calls(tenant, owner, profile, limit, cursor)
        return replace(page, items=[_call(each) for each in page.items])


def without_text_of(exchange: Exchange) -> Exchange:
    """Return an exchange without the text of its error."""
    return replace(exchange, error=_without(exchange.error, exchange.message_id))


def _without_caller(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name != "caller"}


def _call(call: ModelCall) -> ModelCall:
    error = call.error
    if error is not None:
        error = {**error, "message": text_of_model(error["kind"], error["message"])}
    attempts = tuple(
        {**each, "error": (each["error"] or "").partition(":")[0] or None}  # its kind
        for each in call.attempts
    )
    return replace(call, error=error, attempts=attempts)


def _error(error: objects.MessageError | None, message_id: str) -> objects.MessageError | None:
    return replace(error, message=_text(error.type, error.message, message_id)) if error is not None else None


def _text(kind: str, message: str, message_id: str | None) -> str:
    return without_text({"type": kind, "message": message}, message_id)["message"]


def _without(error: Mapping[str, Any] | None, message_id: str) -> Any:
    return without_text(error, message_id) if error is not None else None
