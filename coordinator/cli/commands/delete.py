"""``podium delete``: an agent, for good."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.confirmation import confirm
from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.record import find_agent, opened_blobs, opened_journal

if TYPE_CHECKING:
    from pathlib import Path

    from podium.address import Address

__all__ = ["delete"]


def delete(
    agent: AgentArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Let forks stand on their own first; they lose the history they inherited.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Delete an agent for good: its events, state, files and messages.

    It cannot be undone; podium export keeps a copy. The agent must sleep. What only it needed of the blob store goes
    with the next podium gc.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import IdSource  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415
    from podium.history.delete import delete_agent  # noqa: PLC0415

    with opened_journal(home) as store, opened_blobs(home) as blobs:
        address = Address.parse(find_agent(store, agent).name)
        if not yes:
            confirm(
                f"Delete {address} for good?",
                without_terminal=f"deleting {address} cannot be undone; add --yes to do it",
            )
        deleted = delete_agent(
            store,
            blobs,
            address,
            IdSource(),
            SystemClock().now_ms(),
            detach=detach,
            before_delete=lambda: _remove_layers(home, address),
        )
    if json:
        write_json({"agent": str(address), "events": deleted.tombstone.events, "detached": list(deleted.detached)})
        return
    for name in deleted.detached:
        write_line(f"{name} stands on its own now")
    write_line(f"{address} is deleted: {deleted.tombstone.events} events")
    say("podium gc frees what nothing else needs of the blob store")


def _remove_layers(home: Path, address: Address) -> None:
    """Remove what nodes keep of an agent: an agent of the same address would take it for its own."""
    for layer in (home / "nodes").glob(f"*/layers/{address.workspace_id}"):
        shutil.rmtree(layer)
    for log in (home / "logs").glob(f"{address.workspace_id}.log*"):
        log.unlink()
