"""Commands that change agents of a remote home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from chronicle.cli_kit.confirmation import confirm
from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.exits import ExitCode
from coordinator.cli.remote.connection import ask, moment_of
from coordinator.cli.views.archives import show_erased, show_folded
from coordinator.cli.views.events import parts_text
from coordinator.cli.views.files import show_file_changes, show_patch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.cli.remote.connection import Gateway
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import Difference, Forked, Verification

__all__ = ["cancel_reminder", "delete", "drop", "erase", "fold", "fork", "passivate", "retry", "rewind", "verify"]

_MAX_SHOWN: Final = 20
"""Limit of state changes shown as text."""


def retry(gateway: Gateway, agent: str, message_id: str | None, *, drop_steps: bool, json: bool) -> None:
    """Make one parked message, or all of an agent, pending again."""

    async def put_back(podium: AsyncPodium) -> tuple[list[str], int]:
        parked = [each.message_id for each in await podium.inbox(agent) if each.status == "parked"]
        chosen = parked if message_id is None else [message_id]
        for each in chosen:
            await podium.retry(agent, each, drop_steps=drop_steps)
        return chosen, (await podium.agent(agent)).pending

    chosen, waiting = ask(gateway, f"waking {agent}", put_back)
    if json:
        write_json({"agent": agent, "retried": chosen, "now": bool(chosen or waiting)})
        return
    for each in chosen:
        write_line(each)
    if not chosen and not waiting:
        say(f"no message waits for {agent}, and none is parked")


def drop(gateway: Gateway, agent: str, message_id: str, *, json: bool) -> None:
    """Remove a message permanently."""
    ask(gateway, f"dropping {message_id}", lambda podium: podium.drop(agent, message_id))
    if json:
        write_json({"agent": agent, "message_id": message_id})
    else:
        write_line(f"{message_id} is dropped")


def fork(gateway: Gateway, moment: str, new_key: str, *, json: bool) -> None:
    """Make a new agent that continues another one."""

    async def make(podium: AsyncPodium) -> Forked:
        at = await moment_of(podium, moment)
        return await podium.fork(at.agent, new_key, at=at.turn)

    made = ask(gateway, f"forking {moment}", make)
    if json:
        write_json(made.as_json())
    else:
        write_line(f"{made.agent} continues {made.source.agent} from turn {made.turn}")


def rewind(gateway: Gateway, agent: str, turn: int, only: Sequence[str], *, dry_run: bool, json: bool) -> None:
    """Return an agent to an earlier turn, or show what that would change."""

    async def act(podium: AsyncPodium) -> tuple[int, int | None, Difference]:
        if dry_run:
            planned = await podium.diff(agent, (await podium.agent(agent)).turn, turn)
            return planned.before.turn, None, planned
        done = await podium.rewind(agent, turn, only=only)
        return done.before, done.turn, await podium.diff(agent, done.before, done.turn)

    before, made, changed = ask(gateway, f"waiting for {agent} to end its turn", act)
    state = list(changed.state) if not only or "state" in only else []
    files = list(changed.files) if not only or "files" in only else []
    if json:
        result: dict[str, Any] = {"agent": agent, "from": before, "to": turn, "only": list(only) or None, "turn": made}
        write_json({**result, "state": state, "files": files})
        return
    if state:
        write_line("state")
        show_patch(state, _MAX_SHOWN)
    if files:
        write_line("files")
        show_file_changes(files)
    if dry_run:
        say("nothing was changed (--dry-run)")
    elif made is None:
        say(f"{agent} is already as after turn {turn}; nothing was changed")
    else:
        say(
            f"{agent} is at turn {made}, {parts_text(only)} as after turn {turn}; "
            f"podium rewind {agent} {before} undoes it"
        )


def passivate(gateway: Gateway, agent: str, *, json: bool) -> None:
    """Put an agent to sleep after its running turn."""
    ask(gateway, f"waiting for {agent} to end its turn", lambda podium: podium.passivate(agent))
    if json:
        write_json({"agent": agent, "service": True})
    else:
        say(f"{agent} sleeps")


def verify(gateway: Gateway, agent: str | None, *, json: bool) -> None:
    """Check the stored data of one agent, or of all."""

    async def check(podium: AsyncPodium) -> list[Verification]:
        names = [agent] if agent is not None else [found.agent async for found in podium.agents()]
        return [await podium.verify(name) for name in names]

    checks = ask(gateway, f"checking {agent or 'all agents'}", check)
    events, blobs = sum(each.events for each in checks), sum(each.blobs for each in checks)
    bad = sum(not each.ok for each in checks)
    if json:
        agents = [each.as_json() for each in checks]
        write_json({"ok": not bad, "events": events, "blobs": blobs, "journal": None, "files": {}, "agents": agents})
    else:
        for each in checks:
            found = "good" if each.ok else f"BAD: {each.problem}"
            write_line(f"{each.agent}: {each.events} events, {each.blobs} blobs: {found}")
        verdict = f"{bad} of {len(checks)} agents are damaged" if bad else "no damage was found"
        write_line(f"{events} events and {blobs} blobs checked: {verdict}")
    if bad:
        raise typer.Exit(ExitCode.DAMAGED)


def delete(gateway: Gateway, agent: str, *, yes: bool, detach: bool, json: bool) -> None:
    """Delete an agent permanently."""
    if not yes:
        confirm(
            f"Delete {agent} at {gateway.url} permanently?",
            without_terminal=f"deleting {agent} cannot be undone; add --yes to do it",
        )
    deleted = ask(gateway, f"deleting {agent}", lambda podium: podium.delete(agent, detach=detach))
    if json:
        write_json(deleted.as_json())
        return
    for name in deleted.detached:
        write_line(f"{name} is detached")
    write_line(f"{agent} is deleted: {deleted.events} events")


def fold(
    gateway: Gateway,
    agent: str,
    keep_turns: int | None,
    keep_days: float | None,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Drop the older history of an agent."""
    folded = ask(
        gateway,
        f"folding {agent}",
        lambda podium: podium.fold(agent, keep_turns=keep_turns, keep_days=keep_days, dry_run=dry_run),
    ).as_json()
    if json:
        write_json(folded)
    else:
        show_folded(folded, dry_run=dry_run)


def erase(gateway: Gateway, agent: str, events: Sequence[str], *, yes: bool, json: bool) -> None:
    """Erase the content of events of an agent."""
    if not yes:
        confirm(
            f"Erase {len(set(events))} messages of {agent} at {gateway.url} permanently?",
            without_terminal=f"erasing messages of {agent} cannot be undone; add --yes to do it",
        )
    erased = ask(gateway, f"erasing messages of {agent}", lambda podium: podium.erase(agent, events)).erased
    if json:
        write_json({"agent": agent, "erased": [event.event_id for event in erased]})
    else:
        show_erased([event.as_json() for event in erased])


def cancel_reminder(gateway: Gateway, agent: str, name: str) -> None:
    """Cancel a reminder of an agent."""
    ask(gateway, f"cancelling {name}", lambda podium: podium.cancel_reminder(agent, name))
