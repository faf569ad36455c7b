"""``podium passivate``: an agent out of memory, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.record import find_agent, read_journal
from coordinator.cli.service import ask_service

if TYPE_CHECKING:
    from coordinator.service.client import ServiceClient

__all__ = ["passivate"]


def passivate(
    agent: AgentArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Let an agent go to sleep after the turn that it is in, and return when it sleeps.

    It is woken again by its next message, at once if one waits already.
    """
    with read_journal(home) as store:
        name = find_agent(store, agent).name

    async def put_to_sleep(client: ServiceClient) -> bool:
        await client.passivate(name)
        return True

    asked = ask_service(home, f"waiting for {name} to end its turn", put_to_sleep)
    if json:
        write_json({"agent": name, "service": bool(asked)})
    elif not asked:
        say(f"{name} sleeps: no service is running")
    else:
        say(f"{name} sleeps")
