"""AG-UI 1.0: the frames of a message in, events of a run out. Pure.

===================  ==================================================================================================
frame                events
===================  ==================================================================================================
the first one        ``RUN_STARTED``, with the protocol's version; the agent and the message are in its ``metadata``
``turn_start``       ``MESSAGES_SNAPSHOT`` and ``STATE_SNAPSHOT``: the agent before this attempt; earlier ones are void
``message_start``    ``TEXT_MESSAGE_START``; likewise ``_CONTENT`` and ``_END``
``event``            ``CUSTOM`` with its name
``turn_retry``       ``CUSTOM`` ``podium.retry``
``turn_paused``      ``CUSTOM`` ``podium.decision``, if it waits for an answer; ``RUN_FINISHED``
``turn_end``         ``STATE_DELTA``, the turn's patch; ``CUSTOM`` ``podium.artifact`` for each; ``RUN_FINISHED``
``error``            ``RUN_ERROR``; of a cancelled message ``RUN_FINISHED`` with the outcome ``cancelled``
===================  ==================================================================================================

A client that does not declare version 1.0 knows no such outcome, and would fail at it: it gets ``RUN_ERROR``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coordinator.frontends.wire import CUT_OFF
from coordinator.streams.position import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coordinator.frontends.conversation import Exchange
    from coordinator.frontends.wire import WireFrame
    from podium.turn.stream import Frame

__all__ = ["PROTOCOL_VERSION", "AgUiRun", "ag_ui_messages", "content_text"]

PROTOCOL_VERSION: Final = "1.0"
_ERROR_CODES: Final = {"failed": "turn_failed", "parked": "message_parked", "cancelled": "cancelled"}
"""By outcome; the codes are those of HTTP answers."""


class AgUiRun:
    """Encodes one run.

    Args:
        thread_id, run_id: those of the request.
        parent_run_id: that of the request.
        agent: the address of the agent that runs it, ``type/key``: a fork if the run goes on from an earlier one.
        knows_cancelled: whether the client knows the outcome ``cancelled``.
    """

    def __init__(
        self, thread_id: str, run_id: str, parent_run_id: str | None, agent: str, *, knows_cancelled: bool
    ) -> None:
        self._run = {"threadId": thread_id, "runId": run_id}
        self._parent = {"parentRunId": parent_run_id} if parent_run_id is not None else {}
        self._agent = agent
        self._knows_cancelled = knows_cancelled
        self._started = False
        self._open: list[str] = []
        self._artifacts: list[Frame] = []
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the terminal frame was encoded."""
        return self._ended

    def feed(self, frame: Frame) -> list[WireFrame]:
        """Return the events of a frame.

        Args:
            frame: a ``turn_start`` may have the keys ``state``, the state before the turn, and ``messages``, the
                exchanges up to and with this message.
        """
        return [*self._start(frame["message_id"]), *self._events(frame)]

    def cut_off(self) -> list[WireFrame]:
        """Return the events of a stream that ends before its terminal frame; none after it."""
        if self._ended:
            return []
        self._ended = True
        return [*self._close_texts(), _error(CUT_OFF, "stream_cut_off")]

    # -- inside ---------------------------------------------------------------------------------------------------

    def _start(self, message_id: str) -> list[WireFrame]:
        if self._started:
            return []
        self._started = True
        about = {"agent": self._agent, "messageId": message_id}
        return [
            {
                "type": "RUN_STARTED",
                **self._run,
                **self._parent,
                "protocolVersion": PROTOCOL_VERSION,
                "metadata": {"podium": about},
            }
        ]

    def _events(self, frame: Frame) -> list[WireFrame]:
        match frame["type"]:
            case "queued":
                return [_custom("podium.queued", {"before": frame["before"]})]
            case "turn_start":
                return self._begin_attempt(frame)
            case "turn_retry":
                self._artifacts = []
                retry = {"attempt": frame["attempt"], "error": frame["error"]}
                return [*self._close_texts(), _custom("podium.retry", retry)]
            case "message_start":
                self._open.append(frame["reply_id"])
                return [{"type": "TEXT_MESSAGE_START", "messageId": frame["reply_id"], "role": "assistant"}]
            case "message_update" if frame["delta"]:  # older clients refuse an empty one
                return [{"type": "TEXT_MESSAGE_CONTENT", "messageId": frame["reply_id"], "delta": frame["delta"]}]
            case "message_end":
                self._open.remove(frame["reply_id"])
                return [{"type": "TEXT_MESSAGE_END", "messageId": frame["reply_id"]}]
            case "artifact":
                self._artifacts.append(frame)
            case "event":
                return [_custom(frame["name"], frame["data"])]
            case "turn_end":
                return self._commit(frame)
            case "tool_decision_pending":
                asked = {key: frame[key] for key in ("call_id", "reason", "schema", "args_hash", "expires")}
                return [_custom("podium.decision", {"run_id": frame["message_id"], **asked})]
            case "turn_paused":
                self._ended = True
                return [*self._close_texts(), {"type": "RUN_FINISHED", **self._run, "result": {"status": "paused"}}]
            case "error":
                return self._fail(frame)
        return []

    def _begin_attempt(self, frame: Frame) -> list[WireFrame]:
        self._artifacts = []
        found = self._close_texts()
        if "messages" in frame:
            found.append({"type": "MESSAGES_SNAPSHOT", "messages": ag_ui_messages(frame["messages"])})
        if "state" in frame:
            found.append({"type": "STATE_SNAPSHOT", "snapshot": frame["state"]})
        return found

    def _close_texts(self) -> list[WireFrame]:
        texts, self._open = self._open, []
        return [{"type": "TEXT_MESSAGE_END", "messageId": each} for each in texts]

    def _commit(self, frame: Frame) -> list[WireFrame]:
        self._ended = True
        result = {"agent": self._agent, "turn": frame["turn"], "version": frame["version"], "data": frame.get("data")}
        return [
            *self._close_texts(),
            *([{"type": "STATE_DELTA", "delta": frame["patch"]}] if frame["patch"] else []),
            *(_custom("podium.artifact", _artifact(each)) for each in self._artifacts),
            {"type": "RUN_FINISHED", **self._run, "result": result, "outcome": {"type": "success"}},
        ]

    def _fail(self, frame: Frame) -> list[WireFrame]:
        self._ended = True
        outcome = outcome_of(frame)
        if outcome == "cancelled" and self._knows_cancelled:
            return [*self._close_texts(), {"type": "RUN_FINISHED", **self._run, "outcome": {"type": "cancelled"}}]
        code = frame["error"].get("code") or ("unavailable" if frame.get("pending") else _ERROR_CODES[outcome])
        return [*self._close_texts(), _error(frame["error"]["message"], code)]


def ag_ui_messages(found: Iterable[Exchange]) -> list[dict[str, Any]]:
    """Return exchanges as AG-UI's messages."""
    messages: list[dict[str, Any]] = []
    for exchange in found:
        messages.append({"id": exchange.id, "role": "user", "content": _content(exchange.body)})
        for item in exchange.items:
            if item.kind == "text":
                messages.append({"id": item.id, "role": "assistant", "content": item.value["text"]})
            elif item.kind == "steering":
                messages.append({"id": item.id, "role": "user", "content": _content(item.value)})
    return messages


def content_text(content: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a user message's content."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text" and isinstance(part.get("text"), str))


def _content(body: Mapping[str, Any]) -> Any:
    match body:
        case {"ag_ui": {"parts": [*parts]}}:
            return parts
        case {"text": str(text)}:
            return text
        case _:
            return ""


def _artifact(frame: Frame) -> dict[str, Any]:
    return {key: frame[key] for key in ("artifact_id", "name", "media_type", "size")}


def _custom(name: str, value: Any) -> WireFrame:
    return {"type": "CUSTOM", "name": name, "value": value}


def _error(message: str, code: str) -> WireFrame:
    return {"type": "RUN_ERROR", "message": message, "code": code}
