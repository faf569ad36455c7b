"""``podium passivate``: ending the activation of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import say, write_json
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
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import read_journal
from podium.address import label

if TYPE_CHECKING:
    from coordinator.service.client import ServiceClient

__all__ = ["passivate"]


def passivate(
    agent: AgentArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Put an agent to sleep after its current turn, and return when it sleeps.

    Its next message wakes it again, at once if one already waits.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.passivate(Gateway(url, api_key), agent, json=json)
        return
    with read_journal(home) as store:
        name = label(find_agent(store, agent))

    async def put_to_sleep(client: ServiceClient) -> bool:
        await client.passivate(name)
        return True

    asked = call_service(home, f"waiting for {name} to end its turn", put_to_sleep)
    if json:
        write_json({"agent": name, "service": bool(asked)})
    elif not asked:
        say(f"{name} sleeps: no service is running")
    else:
        say(f"{name} sleeps")
