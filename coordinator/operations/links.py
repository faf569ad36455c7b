"""Links by which their holder answers one question of a paused run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.operations import objects

if TYPE_CHECKING:
    from coordinator.access.administration import KeyAdministration
    from coordinator.access.caller import Caller
    from podium.address import Address
    from podium.messages.answers import Question

__all__ = ["PAGE", "make_link"]

PAGE = "/answer"
"""Path of the gateway's page for links. The token is behind it in the fragment, which browsers send to nobody."""


async def make_link(
    keys: KeyAdministration,
    caller: Caller,
    client: str | None,
    address: Address,
    question: Question,
    expires_in_s: int,
) -> objects.RunLink:
    """Make a link for a question.

    Args:
        caller: may answer it, which the caller of this has checked.
        client: the caller's address, for the audit record.
        address: the agent that asks it.

    Raises:
        NotPermitted: the caller may not answer.
        InvalidInput: the link would live too long.
    """
    link, text = await keys.create_link(caller, client, address, question, expires_in_s)
    assert link.expires_ms is not None, "each link ends"
    return objects.RunLink(
        link_id=link.key_id,
        token=text,
        path=f"{PAGE}#{text}",
        run_id=question.run_id,
        agent=address.name,
        call_id=question.call_id,
        expires_at=link.expires_ms,
    )
