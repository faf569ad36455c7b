"""The hook `on_shutdown` of an agent that will go on with a message: it does not undo what recorded steps rest on.

A service may end in the middle of a turn, or between two attempts of a message. The steps that ended then hold for the
next attempt, unless another turn changes what they changed. A turn of `on_shutdown` that does would have the next
attempt pause for a person (`StepsOutdated`), and what its steps have paid for might be repeated. The hook's turn
is the lesser loss, so it fails, and is rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.errors import PodiumError
from podium.history.step_record import read_record
from podium.state import diff, to_json
from podium.turn.steps.changes import holding
from podium.turn.steps.fitting import common_places

if TYPE_CHECKING:
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.turn.ports import Environment
    from podium.turn.runner import TurnRunner

__all__ = ["shut_down"]


async def shut_down(agent: BaseAgent, ctx: AgentContext[Any], runner: TurnRunner, environment: Environment) -> None:
    """Call `on_shutdown`.

    Raises:
        PodiumError: it changed what steps of the next message changed, too.
        Exception: as it raises.
    """
    message = await runner.ledger.next_message() or await runner.ledger.paused_message()
    stored = await runner.ledger.steps(message.message_id) if message is not None else ()
    if message is None or not stored:
        await agent.on_shutdown(ctx)
        return
    records = holding([read_record(step.body, environment.blobs) for step in stored])
    before = to_json(ctx.state)
    await agent.on_shutdown(ctx)
    places = common_places(records, diff(before, to_json(ctx.state)))
    if any(record.changes_files for record in records):
        tree = await environment.run_blocking(runner.workspace.seal)
        if tree != runner.workspace.base:
            places.append("files")
    if places:
        raise PodiumError(
            f"on_shutdown changed {', '.join(places)}, as did steps of {message.message_id}, with which the agent goes "
            "on when it wakes: what on_shutdown changed is rolled back, so that those steps need not be repeated"
        )
