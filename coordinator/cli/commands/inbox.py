"""``podium inbox``, ``retry`` and ``drop``: pending, paused and parked messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.completion import agent_addresses
from coordinator.cli.options import AgentArgument, command, short_name
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target
from coordinator.cli.views.agents import show_outbox
from coordinator.cli.views.messages import show_inbox

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.cursors import Rest
    from coordinator.operations.objects import Why

__all__ = ["drop", "inbox", "retry"]

MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="As podium inbox shows it.")]


@command
def inbox(
    agent: AgentArgument,
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    target: Target,
) -> None:
    """Show what waits at an agent: pending, paused and parked messages, and those of others held in the outbox.

    Pending messages wait; the first one may be in progress. A paused one holds up those behind it until it is answered
    (podium resolve) or dropped. Parked ones failed their last attempt: podium retry makes
    them pending again, podium drop removes a message.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none

    wanted = bounds(limit, cursor, everything=everything, target=target)

    async def read(podium: AsyncPodium) -> tuple[list[dict[str, Any]], dict[str, Any] | None, Rest]:
        from coordinator.client.errors import ResourceNotFound  # noqa: PLC0415

        outbox = (await podium.why(agent)).outbox
        messages: list[dict[str, Any]] = []
        rest: Rest = {"next_cursor": None, "remaining": 0}
        try:
            messages, rest = await collect(
                lambda limit, cursor: podium.pages().inbox(agent, limit=limit, cursor=cursor), wanted
            )
        except ResourceNotFound:
            if outbox is None:
                raise
        return messages, outbox.as_json() if outbox is not None else None, rest

    messages, outbox, rest = target.ask(f"reading the inbox of {agent}", read, agent)
    if target.json:
        write_json({"agent": agent, "messages": messages, "outbox": outbox, **rest})
        return
    now_ms = SystemClock().now_ms()
    if messages:
        show_inbox(messages, now_ms)
    elif outbox is None:
        say(f"no message waits for {agent}, and none is parked")
    say_rest(rest)
    if outbox is not None:
        show_outbox(agent, outbox, now_ms)


@command
def retry(
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="[AGENT]",
            help="An agent's address, such as hello/alice; or --all.",
            autocompletion=agent_addresses,
            callback=short_name,
        ),
    ] = None,
    message_id: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE_ID]", help="Only this one; by default all parked messages.")
    ] = None,
    *,
    everywhere: Annotated[bool, typer.Option("--all", help="All parked messages of all agents of the tenant.")] = False,
    agent_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="With --all: only of the agents of this type.")
    ] = None,
    drop_steps: Annotated[
        bool, typer.Option("--drop-steps", help="Begin anew: run again the steps that ended in earlier attempts.")
    ] = False,
    target: Target,
) -> None:
    """Make parked messages pending again, and wake the agent.

    They return to their places in the inbox, with their attempts reset to 0. A message that waits because its agent
    could not be woken stays in its place. Steps that ended in earlier attempts are not run again. Messages are handled
    at once if a running service knows the agent's code, else at the next podium run for the agent. --all does that for
    the parked messages of all agents; a line names each with its agent. Those that are parked meanwhile stay.
    """
    if (agent is None) != everywhere or (agent_type is not None and not everywhere):
        raise typer.BadParameter("give an agent, or --all, with --type TYPE for the agents of one type")
    if agent is None:
        _retry_all(agent_type, target, drop_steps=drop_steps)
        return

    async def put_back(podium: AsyncPodium) -> tuple[list[str], Why]:
        parked = [each.message_id for each in await podium.inbox(agent) if each.status == "parked"]
        chosen = parked if message_id is None else [message_id]
        for each in chosen:
            await podium.retry(agent, each, drop_steps=drop_steps)
        return chosen, await podium.why(agent)

    chosen, now = target.ask(f"waking {agent}", put_back, agent, writes=True)
    if target.json:
        write_json({"agent": agent, "retried": chosen, "now": bool(chosen or now.pending) and now.service})
        return
    for each in chosen:
        write_line(each)
    if not chosen and not now.pending:
        say(f"no message waits for {agent}, and none is parked")
    elif not now.service:
        say(f"handled at the next podium run for {agent}")
    elif now.pending:
        say(f"{agent} waits for {now.waits_for}")


def _retry_all(agent_type: str | None, target: Target, *, drop_steps: bool) -> None:
    """Retry the parked messages of all agents, or of those of a type, each as it is found."""

    async def put_back(podium: AsyncPodium) -> None:
        from coordinator.client.errors import RequestConflict, ResourceNotFound  # noqa: PLC0415

        async for found in podium.agents(agent_type=agent_type):
            if not found.parked:
                continue
            for message in await podium.inbox(found.agent):
                if message.status != "parked":
                    continue
                try:
                    await podium.retry(found.agent, message.message_id, drop_steps=drop_steps)
                except (ResourceNotFound, RequestConflict) as error:  # somebody else has retried or dropped it
                    say(f"{message.message_id} of {found.agent} is not retried: {error}")
                    continue
                if target.json:
                    write_json({"agent": found.agent, "retried": message.message_id})
                else:
                    write_line(f"{message.message_id} of {found.agent}")

    target.ask("retrying parked messages", put_back, writes=True)


@command
def drop(agent: AgentArgument, message_id: MessageArgument, *, target: Target) -> None:
    """Remove a pending, paused or parked message permanently.

    A message that is being handled is cancelled. The removal is recorded as turn.cancelled. The text of the message is
    not kept.
    """
    target.ask(f"dropping {message_id}", lambda podium: podium.drop(agent, message_id), agent, writes=True)
    if target.json:
        write_json({"agent": agent, "message_id": message_id})
    else:
        write_line(f"{message_id} is dropped")
