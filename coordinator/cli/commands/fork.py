"""``podium fork``: a new agent that continues the history of another one."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json, write_line
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
from coordinator.cli.stores import opened_journal

__all__ = ["fork"]


def fork(
    moment: MomentArgument,
    new_key: Annotated[str, typer.Argument(metavar="NEW_KEY", help="The new agent's key; its type stays.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Make a new agent that continues another one.

    It has the state, the files and the history of the other one's last turn, or of an earlier turn; from there the two
    are independent. Nothing is copied, and the agent may be running.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.fork(Gateway(url, api_key), moment, new_key, json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.operations.branches import fork as fork_agent  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415

    with opened_journal(home) as store:
        session, turn = split_moment(store, moment)
        source = Address.of(session)
        forked, parent_branch_id = fork_agent(store, source, turn, new_key, IdSource(), SystemClock().now_ms())
        branch_id = store.session(forked.agent, source.tenant).main_branch_id
    target = Address.parse(forked.agent, source.tenant)
    if json:
        continued = {**forked.source.as_json(), "agent": str(source), "branch": parent_branch_id}
        write_json({**forked.as_json(), "agent": str(target), "branch": branch_id, "from": continued})
        return
    write_line(f"{target} continues {source} from turn {forked.turn}")
