"""Artifacts that a hook hands out."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from podium.artifacts.artifacts import artifact_frame, artifact_payload, event_id_of
from podium.artifacts.names import check_media_type, check_name, media_type_of
from podium.events import ARTIFACT_ADDED
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from podium.turn.scope.open_turn import OpenTurn, RunningHook
    from podium.turn.scope.replies import Replies

__all__ = ["Artifacts", "keep_artifacts"]


class Artifacts:
    """The artifacts of one hook."""

    def __init__(self, hook: RunningHook, replies: Replies) -> None:
        self._hook = hook
        self._replies = replies

    async def add(self, name: str, data: bytes | str | Path | FileIO, media_type: str | None) -> str:
        """Add an artifact to the turn, send its frame, and return its id; see `AgentContext.add_artifact`.

        Args:
            data: also a file at its beginning, which the caller has made; it is read to its end.
        """
        turn = self._hook.turn
        turn.check_open()
        check_name(name)
        if media_type is None:
            media_type = media_type_of(name, text=isinstance(data, str))
        check_media_type(media_type)
        content = await turn.env.run_blocking(turn.artifacts.take, name, data)
        turn.check_open()
        payload = artifact_payload(turn.env.ids.event(turn.env.clock.now_ms()), name, media_type, content)
        step = current_step()
        if step is not None:
            await turn.env.run_blocking(turn.artifacts.flush)  # the record of the step is durable before the turn is
            step.note_artifact(payload)
        await self.add_again(payload)
        return str(payload["artifact_id"])

    async def add_again(self, payload: JsonObject) -> None:
        """Add an artifact whose content is stored, and send its frame.

        Raises:
            PodiumError: the turn is over.
        """
        self._hook.record(ARTIFACT_ADDED, payload, event_id_of(str(payload["artifact_id"])))
        await self._replies.publish(artifact_frame(payload))


async def keep_artifacts(turn: OpenTurn) -> None:
    """Make the contents of a turn's artifacts durable; call it after `OpenTurn.finish`.

    Raises:
        Unavailable: the blob store could not be reached.
    """
    if ARTIFACT_ADDED in map(attrgetter("type"), turn.drafts):
        await turn.env.run_blocking(turn.artifacts.keep)
