"""``podium state``: an agent's state, now or after an earlier turn."""

from __future__ import annotations

from chronicle.cli_kit.terminal import json_text, say, write, write_json
from coordinator.cli.lookup import split_moment
from coordinator.cli.options import (
    DEFAULT_HOME,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    MomentArgument,
    UrlOption,
)
from coordinator.cli.stores import opened_blobs, read_journal

__all__ = ["state"]


def state(
    moment: MomentArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show an agent's state, now or after a turn.

    The committed state is shown; a running agent may be in the middle of a later turn.
    """
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.state(Gateway(url, api_key), moment, json=json)
        return
    from coordinator.operations.history import state_object  # noqa: PLC0415  slow to import, and --help needs none
    from podium.address import Address  # noqa: PLC0415

    with read_journal(home) as store, opened_blobs(home) as blobs:
        session, turn = split_moment(store, moment)
        address = Address.of(session)
        found = state_object(store, blobs, address, turn)
    if json:
        write_json({**found.as_json(), "agent": str(address), "branch": session.main_branch_id})
        return
    say(f"{address} after turn {found.turn}")
    write(json_text(found.state, indent=2) + "\n")
