"""The agents of a home for callers that are no administrators: they are not told who has asked an agent before them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinator.operations.agents import HomeAgents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.operations import objects
    from podium.address import Address

__all__ = ["PrivateAgents"]


class PrivateAgents(HomeAgents):
    """The same agents, with messages without their callers: keys, scopes and claims of other people's tokens.

    Args:
        agents: whose stores and link are shared; their owner closes them.
    """

    def __init__(self, agents: HomeAgents) -> None:
        vars(self).update(vars(agents))

    async def events(
        self,
        address: Address,
        *,
        after_seq: int = 0,
        types: Sequence[str] = (),
        limit: int = 100,
        cursor: str | None = None,
    ) -> objects.EventPage:
        """As of `HomeAgents`, without the callers of messages."""
        page = await super().events(address, after_seq=after_seq, types=types, limit=limit, cursor=cursor)
        return replace(page, items=tuple(replace(each, payload=_without_caller(each.payload)) for each in page.items))

    async def difference(
        self, address: Address, before: int | None, after: int | None, other: Address | None
    ) -> objects.Difference:
        """As of `HomeAgents`, without the callers of messages."""
        found = await super().difference(address, before, after, other)
        sides = (found.transcript.removed, found.transcript.added)
        removed, added = (
            tuple({**event, "payload": _without_caller(event["payload"])} for event in side) for side in sides
        )
        return replace(found, transcript=replace(found.transcript, removed=removed, added=added))


def _without_caller(payload: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if payload is None else {name: value for name, value in payload.items() if name != "caller"}
