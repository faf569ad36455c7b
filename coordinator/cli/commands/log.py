"""``podium log``: the events of an agent."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.paging import most, say_later_events
from coordinator.cli.target import Target
from coordinator.cli.views.events import show_steps, write_event
from coordinator.cli.views.messages import text_of
from podium.events import EVENT_TYPES, TURN_COMMITTED, TURN_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import Event

__all__ = ["log"]

_LOOK_S: Final = 0.5
"""Interval at which ``--follow`` looks for steps, while no event comes."""


@command
def log(
    agent: AgentArgument,
    *,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only events after this seq.")] = 0,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, help="The most events; 100 by default, without --follow."),
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type; can be repeated.")
    ] = None,
    all_events: Annotated[
        bool,
        typer.Option("--all", help="All events, unless --limit says how many; also those that a rewind has hidden."),
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new events, until Ctrl-C.")] = False,
    target: Target,
) -> None:
    """Show an agent's events, oldest first; not those that a rewind has hidden.

    Messages, replies, and turns with their state patches and tree ids; failed attempts with their errors, and with
    their messages while those are kept. Below them, the steps that ended in the running attempt of a message, or in
    attempts that failed.
    """
    left = None if follow and limit is None else most(limit, everything=all_events)
    shown = _Log(agent, types or (), after, left, hidden=all_events, json=target.json)
    target.ask("", shown.show, agent)
    if follow and shown.left != 0:
        target.run(shown.follow)


class _Log:
    """The part of an agent's events that was shown.

    Args:
        after: the seq of the event before the first one.
        left: limit of events to show; ``None`` for none.
        hidden: whether those are shown that a rewind has hidden.
    """

    def __init__(
        self, agent: str, types: Sequence[str], after: int, left: int | None, *, hidden: bool, json: bool
    ) -> None:
        self._agent = agent
        self._types = types
        self._after = after
        self.left = left
        self._hidden = hidden
        self._json = json
        self._steps: set[tuple[str, int]] = set()

    async def show(self, podium: AsyncPodium) -> None:
        """Show the events that there are, and below them the steps of messages that are not settled."""
        for unknown in sorted(set(self._types) - EVENT_TYPES):
            await self._refuse_unless_there(podium, unknown)
        texts = _Texts(podium, self._agent)
        async with aclosing(podium.events(self._agent, after=self._after, types=self._types)) as events:
            async for event in events:
                if self.left == 0 and self._is_shown(event):
                    say_later_events(self._after, (await podium.agent(self._agent)).version)
                    return
                await self._show(event, texts)
        if self.left != 0:
            await self._show_steps(podium)

    async def follow(self, podium: AsyncPodium) -> None:
        """Show events and steps as they come."""
        from podium.tasks import with_pauses  # noqa: PLC0415

        following = podium.events(self._agent, after=self._after, types=self._types, follow=True)
        async with aclosing(with_pauses(following, _LOOK_S)) as events:
            while self.left != 0:
                event = await anext(events)
                if event is None:
                    await self._show_steps(podium)
                else:
                    await self._show(event, _Texts(podium, self._agent))

    def _is_shown(self, event: Event) -> bool:
        return event.visible or self._hidden

    async def _show(self, event: Event, texts: _Texts) -> None:
        self._after = event.seq
        if not self._is_shown(event):
            return
        self.left = None if self.left is None else self.left - 1
        if self._json:
            write_json(event.as_json())
        else:
            write_event(event.as_json(), await texts.named_by(event))

    async def _show_steps(self, podium: AsyncPodium) -> None:
        """Show the steps of messages that are not settled, each once."""
        if not self._types:
            steps = [step.as_json() for message in await podium.inbox(self._agent) for step in message.steps]
            show_steps(steps, self._steps, json=self._json)

    async def _refuse_unless_there(self, podium: AsyncPodium, event_type: str) -> None:
        """Refuse an event type that this release does not know and of which the agent has no event."""
        from chronicle.errors import InvalidInput  # noqa: PLC0415
        from coordinator.operations.suggestions import nearest  # noqa: PLC0415

        async with aclosing(podium.events(self._agent, types=(event_type,))) as events:
            if await anext(events, None) is None:
                known = nearest(event_type, sorted(EVENT_TYPES), most=20)
                raise InvalidInput(f"no events of type {event_type!r}; {known}")


class _Texts:
    """Texts of messages that are in an inbox, by their ids; each inbox is read once.

    Args:
        agent: the agent whose events are shown.
    """

    def __init__(self, podium: AsyncPodium, agent: str) -> None:
        self._podium = podium
        self._agent = agent
        self._inboxes: dict[str, dict[str, str]] = {}

    async def named_by(self, event: Event) -> str:
        """Return the texts of messages that an event only names: of a failed attempt, or sent to other agents."""
        if event.type == TURN_FAILED and event.correlation_id is not None:
            return await self._text(self._agent, event.correlation_id)
        if event.type != TURN_COMMITTED or event.payload is None:
            return ""
        payload: dict[str, Any] = event.payload
        receivers = payload.get("sent_to") or [None] * len(payload["sent"])
        said = []
        for receiver, message_id in zip(receivers, payload["sent"], strict=True):
            text = await self._text(receiver, message_id) if receiver is not None else ""
            said.append(f"to {receiver or 'another agent'}" + (f": {text}" if text else ""))
        return "; ".join(said)

    async def _text(self, agent: str, message_id: str) -> str:
        """Return the text of a message; empty if it is not kept, or is not delivered yet."""
        from coordinator.client.errors import ClientError  # noqa: PLC0415
        from podium.address import Address  # noqa: PLC0415

        if agent not in self._inboxes:
            self._inboxes[agent] = {}
            name = str(Address.parse(agent, Address.parse(self._agent).tenant))
            with suppress(ClientError):
                self._inboxes[agent] = {
                    each.message_id: text_of(each.message) for each in await self._podium.inbox(name)
                }
        return self._inboxes[agent].get(message_id, "")
