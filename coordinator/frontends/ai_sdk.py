"""The UI message stream of the AI SDK (version 7): the frames of a message in, chunks out. Pure.

===================  ==================================================================================================
frame                chunks
===================  ==================================================================================================
``queued``           ``data-queued``, transient
``turn_start``       ``start`` and ``start-step`` the first time; ``reset-step`` if an attempt had said something
``message_start``    ``text-start``; likewise ``text-delta`` and ``text-end``
``event``            ``data-NAME``, transient, as it is not recorded; of a steering message ``steering-message``
``turn_retry``       ``reset-step``, and ``data-retry``, transient
``turn_paused``      ``data-decision``, if it waits for an answer; ``finish-step``, ``finish``
``turn_end``         ``file`` for each artifact, as it can be fetched now, ``data-turn``, ``finish-step``, ``finish``
``error``            ``error``; of a cancelled message ``abort`` and ``finish`` with the reason ``interrupted``
===================  ==================================================================================================

The id of the assistant's message is podium's id of the message that it answers, so a client can cancel it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coordinator.frontends.conversation import client_id
from coordinator.frontends.wire import CUT_OFF
from coordinator.streams.position import outcome_of
from podium.turn.hooks.steering import STEERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.frontends.conversation import Exchange
    from coordinator.frontends.wire import WireFrame
    from podium.turn.stream import Frame

__all__ = ["HEADERS", "UiMessageStream", "text_of", "ui_messages"]

HEADERS: Final[Mapping[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}
"""Headers of the stream's response, beside those of every stream."""
TURN_ID: Final = "turn"
"""The id of the part that tells of the commit: a message has one."""


class UiMessageStream:
    """Encodes the stream of one message.

    Args:
        agent_path: the path of the agent's routes, such as ``/v1/agents/hello/alice``.
    """

    def __init__(self, agent_path: str) -> None:
        self._agent_path = agent_path
        self._started = False
        self._in_step = False
        self._dirty = False
        """Whether the step has parts."""
        self._open: list[str] = []
        """The texts that were begun and have not ended."""
        self._artifacts: list[Frame] = []
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the terminal frame was encoded."""
        return self._ended

    def feed(self, frame: Frame) -> list[WireFrame]:
        """Return the chunks of a frame."""
        match frame["type"]:
            case "queued":
                return [_passing("queued", {"before": frame["before"]})]
            case "turn_start":
                return [*self._start(frame["message_id"]), *self._begin_attempt()]
            case "turn_retry":
                retry = {"attempt": frame["attempt"], "error": frame["error"]}
                return [*self._reset(), _passing("retry", retry)]
            case "message_start":
                self._open.append(frame["reply_id"])
                return self._said({"type": "text-start", "id": frame["reply_id"]})
            case "message_update":
                return self._said({"type": "text-delta", "id": frame["reply_id"], "delta": frame["delta"]})
            case "message_end":
                self._open.remove(frame["reply_id"])
                return self._said({"type": "text-end", "id": frame["reply_id"]})
            case "artifact":
                self._artifacts.append(frame)
                return []
            case "event" if frame["name"] == STEERED:
                return self._said(_steering(frame["data"]))
            case "event":
                return [_passing(frame["name"], frame["data"])]
            case "turn_end":
                return self._commit(frame)
            case "tool_decision_pending":
                asked = {key: frame[key] for key in ("call_id", "reason", "schema", "args_hash", "expires")}
                return [_passing("decision", {"run_id": frame["message_id"], **asked})]
            case "turn_paused":
                self._ended = True
                step: list[WireFrame] = [{"type": "finish-step"}] if self._in_step else []
                return [*self._close_texts(), *step, {"type": "finish", "finishReason": "other"}]
            case "error":
                return self._fail(frame)
        return []

    def cut_off(self) -> list[WireFrame]:
        """Return the chunks of a stream that ends before its terminal frame; none after it."""
        if self._ended:
            return []
        self._ended = True
        return [*self._close_texts(), {"type": "error", "errorText": CUT_OFF}]

    # -- inside ---------------------------------------------------------------------------------------------------

    def _start(self, message_id: str) -> list[WireFrame]:
        if self._started:
            return []
        self._started = True
        return [{"type": "start", "messageId": message_id}]

    def _begin_attempt(self) -> list[WireFrame]:
        if self._in_step:
            return self._reset()
        self._in_step = True
        return [{"type": "start-step"}]

    def _reset(self) -> list[WireFrame]:
        """Void what the attempt said. An attempt that is repeated after the loss of its host is not announced."""
        self._open, self._artifacts = [], []
        if not self._dirty:
            return []
        self._dirty = False
        return [{"type": "reset-step"}]

    def _said(self, chunk: WireFrame) -> list[WireFrame]:
        self._dirty = True
        return [chunk]

    def _close_texts(self) -> list[WireFrame]:
        texts, self._open = self._open, []
        return [{"type": "text-end", "id": each} for each in texts]

    def _commit(self, frame: Frame) -> list[WireFrame]:
        self._ended = True
        turn = {key: frame[key] for key in ("turn", "version", "patch", "data") if key in frame}
        return [
            *self._close_texts(),
            *(_file(self._agent_path, artifact) for artifact in self._artifacts),
            {"type": "data-turn", "id": TURN_ID, "data": turn},
            {"type": "finish-step"},
            {"type": "finish", "finishReason": "stop", "messageMetadata": {"turn": frame["turn"]}},
        ]

    def _fail(self, frame: Frame) -> list[WireFrame]:
        self._ended = True
        message = frame["error"]["message"]
        if outcome_of(frame) == "cancelled":
            step: list[WireFrame] = [{"type": "finish-step"}] if self._in_step else []
            return [
                *self._close_texts(),
                *step,
                {"type": "abort", "reason": message},
                {"type": "finish", "finishReason": "interrupted"},
            ]
        return [
            *self._close_texts(),
            {"type": "error", "errorText": message},
            {"type": "finish", "finishReason": "error"},
        ]


def ui_messages(found: Iterable[Exchange], agent_path: str) -> list[dict[str, Any]]:
    """Return exchanges as the AI SDK's ``UIMessage`` objects.

    A pending message has no assistant's message: its stream brings it. One that is parked has its error in
    ``metadata.error``.
    """
    messages: list[dict[str, Any]] = []
    for exchange in found:
        messages.append(_user_message(exchange))
        if exchange.items or (exchange.status == "done" and exchange.data is not None):
            messages.append(_assistant_message(exchange, agent_path))
    return messages


def text_of(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a message's parts."""
    return "".join(part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))


def _user_message(exchange: Exchange) -> dict[str, Any]:
    body = exchange.body
    metadata = {
        name: value
        for name, value in (
            ("status", exchange.status if exchange.status != "done" else None),
            ("error", exchange.error),
            ("sender", exchange.sender),
            ("reminder", exchange.reminder),
        )
        if value is not None
    }
    return {
        "id": exchange.id,
        "role": "user",
        **({"metadata": metadata} if metadata else {}),
        "parts": _parts(body),
    }


def _parts(body: Mapping[str, Any]) -> list[Any]:
    """Return a message's parts, as the front end sent them; of another message its text, else all of it as data."""
    match body:
        case {"ui": {"parts": [*parts]}} | {"ag_ui": {"parts": [*parts]}}:
            return parts
        case {"text": str(text)}:
            return [{"type": "text", "text": text}]
        case _:
            return [{"type": "data-message", "data": dict(body)}]


def _assistant_message(exchange: Exchange, agent_path: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "step-start"}]
    files: list[dict[str, Any]] = []
    for item in exchange.items:
        match item.kind:
            case "text":
                parts.append({"type": "text", "text": item.value["text"], "state": "done"})
            case "artifact":
                files.append(_file(agent_path, item.value))
            case "steering":
                parts.append({"type": "steering-message", "id": item.id, "parts": _parts(item.value)})
    turn = {"turn": exchange.turn, **({"data": exchange.data} if exchange.data is not None else {})}
    return {
        "id": exchange.message_id,
        "role": "assistant",
        "metadata": {"turn": exchange.turn},
        "parts": [*parts, *files, {"type": "data-turn", "id": TURN_ID, "data": turn}],
    }


def _file(agent_path: str, artifact: Mapping[str, Any]) -> dict[str, Any]:
    """Return an artifact as a part; chunk and part are the same object."""
    about = {"artifactId": artifact["artifact_id"], "name": artifact["name"], "size": artifact["size"]}
    return {
        "type": "file",
        "url": f"{agent_path}/artifacts/{artifact['artifact_id']}",
        "mediaType": artifact["media_type"],
        "providerMetadata": {"podium": about},
    }


def _steering(data: Mapping[str, Any]) -> WireFrame:
    body = data["message"]
    text = body["text"] if isinstance(body.get("text"), str) else ""
    parts = [part for part in _parts(body) if isinstance(part, dict) and part.get("type") in {"text", "file"}]
    chosen = parts or [{"type": "text", "text": text}]
    return {"type": "steering-message", "id": client_id(data["message_id"], body), "parts": chosen}


def _passing(name: str, data: Any) -> WireFrame:
    return {"type": f"data-{name}", "data": data, "transient": True}
