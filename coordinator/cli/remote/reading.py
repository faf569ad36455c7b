"""Commands that read a remote home."""

from __future__ import annotations

import base64
from contextlib import aclosing
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import json_text, say, write, write_json, write_line
from chronicle.clock import SystemClock
from chronicle.errors import NotFound
from coordinator.cli.remote.connection import ask, moment_of
from coordinator.cli.views.agents import show_agents, show_nodes, show_outbox, show_why
from coordinator.cli.views.events import show_steps, write_event
from coordinator.cli.views.files import show_artifacts, show_diff, show_text, show_versions
from coordinator.cli.views.messages import show_inbox, show_reminders
from coordinator.client.errors import ResourceNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from coordinator.cli.remote.connection import Gateway, Moment
    from coordinator.client.async_client import AsyncPodium
    from coordinator.client.results import Artifact, Difference, FileVersion, FoundArtifact, Outbox, State

__all__ = [
    "artifact",
    "artifacts",
    "cat",
    "diff",
    "history",
    "inbox",
    "log",
    "nodes",
    "ps",
    "reminders",
    "state",
    "why",
]


def ps(gateway: Gateway, *, json: bool) -> None:
    """Show the agents of a home."""

    async def read(podium: AsyncPodium) -> list[dict[str, Any]]:
        return [
            {
                **agent.model_dump(include={"agent", "status", "turn", "version"}),
                "last_activity": agent.updated_at,
                "pending": agent.pending,
                "parked": agent.parked,
                "isolation": agent.isolation,
                "memory": agent.memory,
            }
            async for agent in podium.agents()
        ]

    agents = ask(gateway, f"listing the agents of {gateway.url}", read)
    if json:
        write_json({"home": gateway.url, "service": True, "agents": agents})
    elif agents:
        show_agents(agents, SystemClock().now_ms())
    else:
        say(f"no agents at {gateway.url} yet")


def why(gateway: Gateway, agent: str, *, json: bool) -> None:
    """Show what an agent waits for."""
    found = ask(gateway, f"asking for {agent}", lambda podium: podium.why(agent)).model_dump()
    if json:
        write_json(found)
    else:
        show_why(found, SystemClock().now_ms())


def nodes(gateway: Gateway, *, json: bool) -> None:
    """Show the nodes of a home."""
    found = [node.model_dump() for node in ask(gateway, "asking for the nodes", lambda podium: podium.nodes())]
    if json:
        write_json({"service": True, "nodes": found})
    else:
        show_nodes(found)


def state(gateway: Gateway, moment: str, *, json: bool) -> None:
    """Show an agent's state."""

    async def read(podium: AsyncPodium) -> State:
        at = await moment_of(podium, moment)
        return await podium.state(at.agent, at=at.turn)

    found = ask(gateway, f"reading {moment}", read)
    if json:
        write_json(found.model_dump(include={"agent", "version", "turn", "state"}))
        return
    say(f"{found.agent} after turn {found.turn}")
    write(json_text(found.state, indent=2) + "\n")


def log(
    gateway: Gateway,
    agent: str,
    *,
    after: int,
    limit: int | None,
    types: Sequence[str],
    hidden: bool,
    follow: bool,
    json: bool,
) -> None:
    """Show an agent's events, with ``hidden`` those that a rewind has hidden, and with ``follow`` those that come."""

    async def show(podium: AsyncPodium) -> None:
        left = limit
        if left == 0:
            return
        async with aclosing(podium.events(agent, after=after, types=types, follow=follow)) as events:
            async for event in events:
                if not (event.visible or hidden):
                    continue
                shown = event.model_dump(exclude={"visible"})
                if json:
                    write_json(shown)
                else:
                    write_event(shown)
                left = None if left is None else left - 1
                if left == 0:
                    return
        if not types:
            waiting = await podium.inbox(agent)
            show_steps((step.model_dump() for message in waiting for step in message.steps), set(), json=json)

    ask(gateway, "", show)


def inbox(gateway: Gateway, agent: str, *, json: bool) -> None:
    """Show the pending and parked messages of an agent, and what the outbox has for it."""

    async def read(podium: AsyncPodium) -> tuple[list[dict[str, Any]], Outbox | None]:
        outbox = (await podium.why(agent)).outbox
        try:
            messages = await podium.inbox(agent)
        except ResourceNotFound:
            if outbox is None:
                raise
            messages = []
        return [
            {
                "message_id": message.message_id,
                "position": message.position,
                "status": message.status,
                "attempts": message.attempts,
                "admitted": message.admitted_at,
                "sender": message.sender,
                "message": message.message,
                "error": message.error.model_dump() if message.error else None,
                "steps": [step.model_dump() for step in message.steps],
            }
            for message in messages
        ], outbox

    messages, outbox = ask(gateway, f"reading the inbox of {agent}", read)
    held, now_ms = outbox.model_dump() if outbox is not None else None, SystemClock().now_ms()
    if json:
        write_json({"agent": agent, "messages": messages, "outbox": held})
        return
    if messages:
        show_inbox(messages, now_ms)
    elif held is None:
        say(f"no message waits for {agent}, and none is parked")
    if held is not None:
        show_outbox(agent, held, now_ms)


def reminders(gateway: Gateway, agent: str, cancel: str | None, *, json: bool) -> None:
    """Show the reminders of an agent, or cancel one."""
    if cancel is not None:
        ask(gateway, f"cancelling {cancel}", lambda podium: podium.cancel_reminder(agent, cancel))
        if json:
            write_json({"agent": agent, "name": cancel})
        else:
            write_line(f"{cancel} is cancelled")
        return
    found = ask(gateway, f"reading the reminders of {agent}", lambda podium: podium.reminders(agent))
    shown = [reminder.model_dump() for reminder in found]
    if json:
        write_json({"agent": agent, "reminders": shown})
    else:
        show_reminders(agent, shown)


def history(gateway: Gateway, moment: str, path: str, *, json: bool) -> None:
    """Show the versions of a path."""

    async def read(podium: AsyncPodium) -> list[FileVersion]:
        at = await moment_of(podium, moment)
        return await _versions(podium, at, path)

    versions = [
        version.model_dump(exclude_none=True) for version in ask(gateway, f"reading the history of {path}", read)
    ]
    if json:
        write_json(versions)
    else:
        show_versions(versions)


def cat(gateway: Gateway, moment: str, path: str, iteration: int | None, *, json: bool) -> None:
    """Show a file, or a version of it. A path that ends in ``@`` and a number itself takes precedence."""

    async def read(podium: AsyncPodium) -> tuple[str, FileVersion, bytes]:
        at = await moment_of(podium, moment)
        name, number = path, iteration
        if number is None:
            before, _, digits = path.rpartition("@")
            if before and digits.isascii() and digits.isdecimal() and not await _exists(podium, at, path):
                name, number = before, int(digits)
        versions = await _versions(podium, at, name)
        chosen = versions[-1] if number is None else next((v for v in versions if v.iteration == number), None)
        if chosen is None:
            raise NotFound(f"{at.agent} has no iteration {number} of {name}")
        turn = at.turn if number is None else None
        return at.agent, chosen, await podium.files(at.agent).read(name, turn=turn, iteration=number)

    agent, version, data = ask(gateway, f"reading {path}", read)
    if not json:
        show_text(data)
        return
    write_json(
        {
            "agent": agent,
            "path": path.rpartition("@")[0] if path.endswith(f"@{version.iteration}") else path,
            "iteration": version.iteration,
            "size": version.size,
            "hash": version.hash,
            **_encoded(data),
        }
    )


def artifacts(gateway: Gateway, moment: str, *, json: bool) -> None:
    """Show the artifacts of an agent."""

    async def read(podium: AsyncPodium) -> tuple[str, list[Artifact]]:
        at = await moment_of(podium, moment)
        found = await podium.artifacts(at.agent)
        return at.agent, [each for each in found if at.turn is None or each.turn <= at.turn]

    agent, found = ask(gateway, f"reading the artifacts of {moment}", read)
    objects = [each.model_dump() for each in found]
    if json:
        write_json(objects)
    elif objects:
        show_artifacts(objects)
    else:
        say(f"{agent} has no artifacts")


def artifact(gateway: Gateway, artifact_id: str, file: BinaryIO) -> dict[str, Any]:
    """Write the content of an artifact to a file, and return what is known of it.

    Raises:
        ResourceNotFound: there is none of that id.
    """

    async def read(podium: AsyncPodium) -> FoundArtifact:
        found = await podium.find_artifact(artifact_id)
        file.write(await podium.artifact(found.agent, artifact_id))
        return found

    return ask(gateway, f"reading {artifact_id}", read).artifact.model_dump()


def diff(gateway: Gateway, moment: str, other: str | None, *, json: bool) -> None:
    """Show the differences between two moments."""

    async def read(podium: AsyncPodium) -> Difference:
        before = await moment_of(podium, moment)
        after = await moment_of(podium, other) if other is not None else None
        if after is None or after.agent == before.agent:
            return await podium.diff(before.agent, before.turn, after.turn if after is not None else None)
        return await podium.diff(before.agent, before.turn, after.turn, other=after.agent)

    found = ask(gateway, f"comparing {moment}", read).model_dump()
    if json:
        write_json(found)
    else:
        show_diff(found)


async def _versions(podium: AsyncPodium, at: Moment, path: str) -> list[FileVersion]:
    """Return the versions of a path up to a moment."""
    versions = await podium.files(at.agent).history(path)
    return [*takewhile(lambda version: at.turn is None or version.turn <= at.turn, versions)]


async def _exists(podium: AsyncPodium, at: Moment, path: str) -> bool:
    try:
        await podium.files(at.agent).history(path)
    except ResourceNotFound:
        return False
    return True


def _encoded(data: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": data.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode()}
