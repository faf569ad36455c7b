"""The answer to a message, put together from its frames: those of the last attempt count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.operations import objects
from coordinator.operations.errors import MessagePaused, not_answered
from coordinator.streams.public_texts import public_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


__all__ = ["AnswerBuilder", "answer_of"]


class AnswerBuilder:
    """Takes a message's frames, in order, and gives its answer.

    Args:
        agent: the address of the agent that handles it.
        message_id: the message.
    """

    def __init__(self, agent: str, message_id: str) -> None:
        self._agent = agent
        self._message_id = message_id
        self._replies: dict[str, str] = {}
        self._artifacts: list[objects.AnswerArtifact] = []
        self._asked: Mapping[str, Any] = {}
        """What the turn asks for before it pauses."""

    def add(self, frame: Mapping[str, Any]) -> objects.Answer | None:
        """Take a frame; return the answer if the frame ends the message's turn.

        Raises:
            MessageNotAnswered: the frame ends the message without an answer.
            MessagePaused: it ends the stream, as the turn is paused.
        """
        match frame["type"]:
            case "turn_start" | "turn_retry":
                self._replies, self._artifacts = {}, []
            case "message_start":
                self._replies[frame["reply_id"]] = ""
            case "message_end":
                self._replies[frame["reply_id"]] = frame["text"]
            case "artifact":
                self._artifacts.append(
                    objects.AnswerArtifact(
                        artifact_id=frame["artifact_id"],
                        name=frame["name"],
                        media_type=frame["media_type"],
                        size=frame["size"],
                    )
                )
            case "tool_decision_pending":
                self._asked = frame
            case "turn_paused":
                run = objects.PausedRun(
                    run_id=self._message_id,
                    agent=self._agent,
                    call_id=frame["call_id"],
                    kind=frame["kind"],
                    reason=frame["reason"],
                    schema=self._asked.get("schema", False),
                    args_hash=self._asked.get("args_hash"),
                    expires=frame["expires"],
                )
                raise MessagePaused(f"{self._message_id} is paused at {run.call_id}", run.as_json())
            case "error":
                raise not_answered(public_frame({"message_id": self._message_id, **frame}))
            case "turn_end":
                return self._answer(frame)
        return None

    def _answer(self, frame: Mapping[str, Any]) -> objects.Answer:
        replies = (objects.AnswerReply(reply_id=name, text=text) for name, text in self._replies.items())
        return objects.Answer(
            message_id=self._message_id,
            agent=self._agent,
            turn=frame["turn"],
            version=frame["version"],
            text="".join(self._replies.values()),
            data=frame.get("data"),
            replies=tuple(replies),
            artifacts=tuple(self._artifacts),
        )


def answer_of(agent: str, message_id: str, frames: Iterable[Mapping[str, Any]]) -> objects.Answer | None:
    """Return the answer in a message's frames; ``None`` if its turn has not ended.

    Raises:
        MessageNotAnswered: the message was not handled.
    """
    builder = AnswerBuilder(agent, message_id)
    for frame in frames:
        if (answer := builder.add(frame)) is not None:
            return answer
    return None
