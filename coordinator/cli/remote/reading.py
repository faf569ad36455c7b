"""Commands that read a remote home."""

from __future__ import annotations

import base64
from contextlib import aclosing
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import json_text, say, write, write_json
from chronicle.clock import SystemClock
from chronicle.errors import NotFound
from coordinator.cli.paging import collect, say_later_events
from coordinator.cli.remote.connection import ask, moment_of
from coordinator.cli.views.agents import show_nodes, show_why
from coordinator.cli.views.events import show_steps, write_event
from coordinator.cli.views.files import show_diff, show_text
from coordinator.client.errors import ResourceNotFound
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import BinaryIO

    from coordinator.cli.paging import Bounds
    from coordinator.cli.remote.connection import Gateway, Moment
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.cursors import Rest
    from coordinator.operations.objects import Agent, Difference, FileVersion, FoundArtifact, Page, State

__all__ = [
    "agents",
    "artifact",
    "artifacts",
    "cat",
    "diff",
    "history",
    "inbox",
    "log",
    "nodes",
    "reminders",
    "state",
    "why",
]


def agents(
    gateway: Gateway, agent_type: str | None, tenant: str | None, wanted: Bounds, *, awake: bool
) -> tuple[list[dict[str, Any]], Rest]:
    """Return agents of a home, as ``ps`` shows them, and what follows them."""

    async def read(podium: AsyncPodium) -> tuple[list[dict[str, Any]], Rest]:
        def page(limit: int, cursor: str | None) -> Awaitable[Page[Agent]]:
            return podium.pages().agents(agent_type=agent_type, tenant=tenant, awake=awake, limit=limit, cursor=cursor)

        found, rest = await collect(page, wanted)
        return [{**agent, "agent": _label(agent["agent"], tenant)} for agent in found], rest

    return ask(gateway, f"listing the agents of {gateway.url}", read)


def why(gateway: Gateway, agent: str, *, json: bool) -> None:
    """Show what an agent waits for."""
    found = ask(gateway, f"asking for {agent}", lambda podium: podium.why(agent)).as_json()
    if json:
        write_json(found)
    else:
        show_why(found, SystemClock().now_ms())


def nodes(gateway: Gateway, *, json: bool) -> None:
    """Show the nodes of a home."""
    found = [node.as_json() for node in ask(gateway, "asking for the nodes", lambda podium: podium.nodes())]
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
        write_json(found.as_json())
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
        if follow and limit == 0:  # no event would come that ends it
            return
        shown, at = 0, after
        async with aclosing(podium.events(agent, after=after, types=types, follow=follow)) as events:
            async for event in events:
                if not (event.visible or hidden):
                    continue
                if shown == limit:
                    say_later_events(at, (await podium.agent(agent)).version)
                    return
                shown, at = shown + 1, event.seq
                line = {key: value for key, value in event.as_json().items() if key != "visible"}
                if json:
                    write_json(line)
                else:
                    write_event(line)
                if follow and shown == limit:
                    return
        if not types and shown != limit:
            waiting = await podium.inbox(agent)
            show_steps((step.as_json() for message in waiting for step in message.steps), set(), json=json)

    ask(gateway, "", show)


def inbox(gateway: Gateway, agent: str, wanted: Bounds) -> tuple[list[dict[str, Any]], dict[str, Any] | None, Rest]:
    """Return pending and parked messages of an agent, what the outbox has for it, and what follows the messages."""

    async def read(podium: AsyncPodium) -> tuple[list[dict[str, Any]], dict[str, Any] | None, Rest]:
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

    return ask(gateway, f"reading the inbox of {agent}", read)


def reminders(gateway: Gateway, agent: str, wanted: Bounds) -> tuple[list[dict[str, Any]], Rest]:
    """Return reminders of an agent, and what follows them."""
    return ask(
        gateway,
        f"reading the reminders of {agent}",
        lambda podium: collect(
            lambda limit, cursor: podium.pages().reminders(agent, limit=limit, cursor=cursor), wanted
        ),
    )


def history(gateway: Gateway, moment: str, path: str, wanted: Bounds) -> tuple[list[dict[str, Any]], Rest]:
    """Return versions of a path, and what follows them."""

    async def read(podium: AsyncPodium) -> tuple[list[dict[str, Any]], Rest]:
        at = await moment_of(podium, moment)
        return await collect(
            lambda limit, cursor: podium.pages().file_history(at.agent, path, turn=at.turn, limit=limit, cursor=cursor),
            wanted,
        )

    return ask(gateway, f"reading the history of {path}", read)


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


def artifacts(gateway: Gateway, moment: str, wanted: Bounds) -> tuple[str, list[dict[str, Any]], Rest]:
    """Return an agent's address, artifacts of it, and what follows them."""

    async def read(podium: AsyncPodium) -> tuple[str, list[dict[str, Any]], Rest]:
        at = await moment_of(podium, moment)
        found, rest = await collect(
            lambda limit, cursor: podium.pages().artifacts(at.agent, turn=at.turn, limit=limit, cursor=cursor),
            wanted,
        )
        return at.agent, found, rest

    return ask(gateway, f"reading the artifacts of {moment}", read)


def artifact(gateway: Gateway, artifact_id: str, file: BinaryIO) -> dict[str, Any]:
    """Write the content of an artifact to a file, and return what is known of it.

    Raises:
        ResourceNotFound: there is none of that id.
    """

    async def read(podium: AsyncPodium) -> FoundArtifact:
        found = await podium.find_artifact(artifact_id)
        file.write(await podium.artifact(found.agent, artifact_id))
        return found

    return ask(gateway, f"reading {artifact_id}", read).artifact.as_json()


def diff(gateway: Gateway, moment: str, other: str | None, *, json: bool) -> None:
    """Show the differences between two moments."""

    async def read(podium: AsyncPodium) -> Difference:
        before = await moment_of(podium, moment)
        after = await moment_of(podium, other) if other is not None else None
        if after is None or after.agent == before.agent:
            return await podium.diff(before.agent, before.turn, after.turn if after is not None else None)
        return await podium.diff(before.agent, before.turn, after.turn, other=after.agent)

    found = ask(gateway, f"comparing {moment}", read).as_json()
    if json:
        write_json(found)
    else:
        show_diff(found)


def _label(agent: str, tenant: str | None) -> str:
    """Return an agent's address, with its tenant if the command names another one than ``default``."""
    return agent if tenant is None else str(Address.parse(agent, tenant))


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
