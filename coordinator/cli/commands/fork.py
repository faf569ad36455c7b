"""``podium fork``: a new agent that continues the history of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import write_json, write_line
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.target import Moment, Target, moment_of

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import Forked

__all__ = ["fork"]


@command
def fork(
    moment: MomentArgument,
    new_key: Annotated[str, typer.Argument(metavar="NEW_KEY", help="The new agent's key; its type stays.")],
    *,
    target: Target,
) -> None:
    """Make a new agent that continues another one.

    It has the state, the files and the history of the other one's last turn, or of an earlier turn; from there the two
    are independent. Nothing is copied, and the agent may be running.
    """
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none

    async def make(podium: AsyncPodium) -> tuple[Moment, Forked]:
        at = await moment_of(podium, moment)
        return at, await podium.fork(at.agent, new_key, at=at.turn)

    source, made = target.ask(f"forking {moment}", make, moment, writes=True)
    forked = made.as_json()
    forked["from"]["agent"] = source.agent
    forked["agent"] = str(Address.parse(made.agent, Address.parse(source.agent).tenant))
    if target.json:
        write_json(forked)
    else:
        write_line(f"{forked['agent']} continues {source.agent} from turn {made.turn}")
