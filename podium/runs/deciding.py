"""The decision about a run, checked before its loop goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podium.answer_schema import check_answer
from podium.errors import RunNotFound, RunNotPaused, ToolNotRegistered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import Json
    from podium.runs.run import AgentRun
    from podium.runs.store import RunStore

__all__ = ["decided"]


async def decided(
    store: RunStore, run_id: str, decision: Json, schemas: Mapping[str, Json], *, call_id: str | None = None
) -> AgentRun:
    """Return a stored run whose pending call a decision fits: its loop may go on.

    Nothing is changed: the run stays as it is until the loop saves it again, or deletes it at its end. So a loop that
    dies before can be given the decision again.

    Args:
        schemas: the JSON Schema of a decision of each tool that the loop has now, by the tool's name.
        call_id: the call that the decision is for; ``None`` for the one that is pending. A decision that comes twice
            is refused by it, if the run waits for another one meanwhile.

    Raises:
        RunNotFound: the store has no such run: it ended, or never was.
        RunNotPaused: it waits for no decision, or for one about another call.
        ToolNotRegistered: the loop does not have the tool of the call any more.
        DecisionInvalid: the decision does not fit the tool's schema.
    """
    run = await store.load(run_id)
    if run is None:
        raise RunNotFound(f"no run {run_id}")
    if (call := run.pending) is None:
        raise RunNotPaused(f"run {run_id} waits for no decision")
    if call_id not in {None, call.tool_call_id}:
        raise RunNotPaused(f"run {run_id} does not wait at {call_id}, but at {call.tool_call_id}")
    if call.tool_name not in schemas:
        raise ToolNotRegistered(run_id, call.tool_name)
    check_answer(schemas[call.tool_name], decision)
    return run
