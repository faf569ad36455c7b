"""``podium fold``: dropping the older history of an agent."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json
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
from coordinator.cli.views.archives import show_folded

__all__ = ["fold"]


def fold(
    agent: AgentArgument,
    *,
    keep_turns: Annotated[
        int | None, typer.Option("--keep-turns", metavar="N", min=1, help="Keep the last N turns at least.")
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", metavar="D", help="Keep what is younger than D days at least.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Drop the older history of an agent; without options, all history before now.

    History can begin at a mark, an event that holds the whole state. A mark is made where one is needed; with --keep-…
    the history before it is dropped by a later call, once the mark is old enough. The agent must sleep. The versions of
    its files are kept.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.fold(Gateway(url, api_key), agent, keep_turns, keep_days, dry_run=dry_run, json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.operations.dropping import fold as fold_agent  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415

    with opened_journal(home) as store, opened_blobs(home) as blobs:
        address = Address.of(find_agent(store, agent))
        now_ms = SystemClock().now_ms()
        folded = fold_agent(store, blobs, address, keep_turns, keep_days, IdSource(), now_ms, dry_run=dry_run)
    shown = {**folded.as_json(), "agent": str(address)}
    if json:
        write_json(shown)
    else:
        show_folded(shown, dry_run=dry_run)
