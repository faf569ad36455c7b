"""``podium delete``: removing an agent permanently."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.confirmation import confirm
from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.stores import opened_blobs, opened_journal

__all__ = ["delete"]


def delete(
    agent: AgentArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Detach forks first; they lose the history that they inherited.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Delete an agent permanently: its events, state, files and messages.

    It cannot be undone; podium export makes a copy. The agent must sleep. Blobs that nothing else needs are freed by
    the next podium gc.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.delete(Gateway(url, api_key), agent, yes=yes, detach=detach, json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.operations.branches import delete as delete_agent  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415

    with opened_journal(home) as store, opened_blobs(home) as blobs:
        address = Address.of(find_agent(store, agent))
        if not yes:
            confirm(
                f"Delete {address} permanently?",
                without_terminal=f"deleting {address} cannot be undone; add --yes to do it",
            )
        now_ms = SystemClock().now_ms()
        deleted = delete_agent(Home(home), store, blobs, address, IdSource(), now_ms, detach=detach)
    if json:
        write_json({**deleted.as_json(), "agent": str(address)})
        return
    for name in deleted.detached:
        write_line(f"{name} is detached")
    write_line(f"{address} is deleted: {deleted.events} events")
    say("podium gc frees the blobs that nothing else needs")
