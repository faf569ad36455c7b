"""``podium inbox``, ``retry`` and ``drop``: pending and parked messages."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.lookup import find_address, find_agent
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, rest_in, say_rest
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import opened_blobs, opened_journal, read_journal
from coordinator.cli.views.agents import show_outbox
from coordinator.cli.views.messages import inbox_row, show_inbox
from podium.address import label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from chronicle.ids import MessageId
    from coordinator.cli.paging import Bounds
    from coordinator.operations.cursors import Rest

__all__ = ["drop", "inbox", "retry"]

MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="As podium inbox shows it.")]


def inbox(
    agent: AgentArgument,
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show the pending and the parked messages of an agent, and how many of other agents are held in the outbox.

    Pending messages wait; the first one may be in progress. Parked ones failed their last attempt: podium retry makes
    them pending again, podium drop removes a message.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none

    found: Sequence[Mapping[str, Any]]
    outbox: Mapping[str, Any] | None
    wanted = bounds(limit, cursor, everything=everything)
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        found, outbox, rest = remote.inbox(Gateway(url, api_key), agent, wanted)
    else:
        agent, found, outbox, rest = _waiting(home, agent, wanted)
    messages, now_ms = [inbox_row(each) for each in found], SystemClock().now_ms()
    if json:
        write_json({"agent": agent, "messages": messages, "outbox": outbox, **rest})
        return
    if messages:
        show_inbox(messages, now_ms)
    elif outbox is None:
        say(f"no message waits for {agent}, and none is parked")
    say_rest(rest)
    if outbox is not None:
        show_outbox(agent, outbox, now_ms)


def _waiting(
    home: Path, name: str, wanted: Bounds
) -> tuple[str, Sequence[Mapping[str, Any]], Mapping[str, Any] | None, Rest]:
    """Return an agent's address, a page of its inbox, what the outbox has for it, and what follows the page."""
    from coordinator.operations.explaining import outbox_object  # noqa: PLC0415  slow to import
    from coordinator.operations.messages import inbox_page  # noqa: PLC0415
    from podium.errors import UnknownAgent  # noqa: PLC0415

    messages: Sequence[Mapping[str, Any]] = ()
    rest: Rest = {"next_cursor": None, "remaining": 0}
    with read_journal(home) as store, opened_blobs(home) as blobs:
        address = find_address(store, name)
        with suppress(UnknownAgent):  # only in the outbox
            page = inbox_page(store, blobs, address, wanted.limit, wanted.cursor)
            messages, rest = [message.as_json() for message in page.items], rest_in(page)
        outbox = outbox_object(store, address, None)
        if outbox is not None:
            facts = call_service(home, f"asking for {address}", lambda client: client.facts(str(address)))
            outbox = outbox_object(store, address, facts)
    return str(address), messages, outbox.as_json() if outbox is not None else None, rest


def retry(
    agent: AgentArgument,
    message_id: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE_ID]", help="Only this one; by default all parked messages.")
    ] = None,
    *,
    drop_steps: Annotated[
        bool, typer.Option("--drop-steps", help="Begin anew: run again the steps that ended in earlier attempts.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Make parked messages pending again, and wake the agent.

    They return to their places in the inbox, with their attempts reset to 0. A message that waits because its agent
    could not be woken stays in its place. Steps that ended in earlier attempts are not run again. Messages are handled
    at once if a running service knows the agent's code, else at the next podium run for the agent.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.retry(Gateway(url, api_key), agent, message_id, drop_steps=drop_steps, json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import MessageId  # noqa: PLC0415
    from chronicle.journal.records import MessageStatus  # noqa: PLC0415
    from coordinator.operations.messages import retry_all  # noqa: PLC0415
    from podium.messages.inbox import retry_message  # noqa: PLC0415

    now_ms = SystemClock().now_ms()
    with opened_journal(home) as store:
        session = find_agent(store, agent)
        if message_id is None:
            chosen = retry_all(store, session, now_ms, drop_steps=drop_steps)
        else:
            chosen = [MessageId(message_id)]
            retry_message(store, session, chosen[0], now_ms, drop_steps=drop_steps)
        waiting = len(store.messages(session.session_id, MessageStatus.PENDING))
    looks = bool(waiting and call_service(home, f"waking {label(session)}", lambda client: client.poke(label(session))))
    if json:
        write_json({"agent": label(session), "retried": chosen, "now": looks})
        return
    for chosen_id in chosen:
        write_line(chosen_id)
    if not waiting:
        say(f"no message waits for {label(session)}, and none is parked")
    elif not looks:
        say(f"handled at the next podium run for {label(session)}")


def drop(
    agent: AgentArgument,
    message_id: MessageArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Remove a pending or parked message permanently.

    A message that is being handled is cancelled. The removal is recorded as turn.cancelled. The text of the message is
    not kept.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.drop(Gateway(url, api_key), agent, message_id, json=json)
        return
    from chronicle.ids import MessageId  # noqa: PLC0415  slow to import, and --help needs none

    dropped = _drop(home, agent, MessageId(message_id))
    if json:
        write_json(dropped)
    else:
        write_line(f"{dropped['message_id']} is dropped")


def _drop(home: Any, agent: str, message_id: MessageId) -> dict[str, Any]:
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.ids import IdSource  # noqa: PLC0415
    from podium.errors import AgentAwake  # noqa: PLC0415
    from podium.messages.inbox import drop_message  # noqa: PLC0415

    with opened_journal(home) as store:
        session = find_agent(store, agent)
        try:
            drop_message(store, session, message_id, IdSource(), SystemClock().now_ms())
        except AgentAwake:

            async def cancel(client: Any) -> bool:
                await client.cancel(label(session), message_id)
                return True

            if not call_service(home, f"asking {label(session)} to cancel it", cancel):
                raise
    return {"agent": label(session), "message_id": message_id}
