"""Artifacts that a hook hands out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from podium.artifacts.artifacts import artifact_frame, artifact_payload
from podium.artifacts.names import check_media_type, check_name, media_type_of
from podium.errors import ContextMisuse
from podium.events import ARTIFACT_ADDED
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from podium.turn.scope.open_turn import OpenTurn, RunningHook
    from podium.turn.scope.replies import Replies

__all__ = ["Artifacts", "keep_artifacts"]


class Artifacts:
    """The artifacts of one hook."""

    def __init__(self, hook: RunningHook, replies: Replies) -> None:
        self._hook = hook
        self._replies = replies

    async def add(self, name: str, data: bytes | str | Path, media_type: str | None) -> str:
        """Add an artifact to the turn, send its frame, and return its id; see `AgentContext.add_artifact`."""
        turn = self._hook.turn
        turn.check_open()
        step = current_step()
        if step is not None:
            raise ContextMisuse(
                f"an artifact cannot be added inside of step {step.key!r}; add it after the step, from its result or "
                "from a file of the workspace"
            )
        check_name(name)
        if media_type is None:
            media_type = media_type_of(name, text=isinstance(data, str))
        check_media_type(media_type)
        content = await turn.env.run_blocking(turn.artifacts.take, name, data)
        turn.check_open()
        event_id = turn.env.ids.event(turn.env.clock.now_ms())
        payload = artifact_payload(event_id, name, media_type, content)
        self._hook.record(ARTIFACT_ADDED, payload, event_id)
        frame = artifact_frame(payload)
        await self._replies.publish(frame)
        return str(frame["artifact_id"])


async def keep_artifacts(turn: OpenTurn) -> None:
    """Make the contents of a turn's artifacts durable; call it after `OpenTurn.finish`.

    Raises:
        Unavailable: the blob store could not be reached.
    """
    if any(draft.type == ARTIFACT_ADDED for draft in turn.drafts):
        await turn.env.run_blocking(turn.artifacts.keep)
