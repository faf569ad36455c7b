"""`Reply`: a message from the agent that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from chronicle.errors import WrongType
from podium.errors import ContextMisuse
from podium.events import ASSISTANT_MESSAGE

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject

__all__ = ["Reply", "ReplySink"]


class ReplySink(Protocol):
    """The turn that a reply belongs to, as the reply sees it."""

    def record(self, event_type: str, payload: JsonObject) -> None:
        """Add an event to the turn."""
        ...

    async def publish(self, frame: dict[str, Any]) -> None:
        """Send a frame to the client."""
        ...


class Reply:
    """A message from the agent to the sender of the message being handled, streamed as it is written.

    Created by `AgentContext.send_message`. Unfinished replies are finished when the hook returns.

    Args:
        ordinal: its number among the replies to the message, from 1, in the order in which they were begun.
    """

    def __init__(self, sink: ReplySink, reply_id: str, ordinal: int) -> None:
        self.sink = sink
        self._parts: list[str] = []
        self._half = ""
        """The first half of a surrogate pair; the next token may have the second half."""
        self.reply_id = reply_id
        self.ordinal = ordinal
        self.finished = False

    @property
    def text(self) -> str:
        """The text written so far."""
        return "".join(self._parts)

    @property
    def record(self) -> JsonObject:
        """The payload of its ``assistant_message`` event."""
        return {"message_id": self.reply_id, "ordinal": self.ordinal, "text": self.text}

    async def stream_token(self, token: str, *, final: bool = False) -> None:
        """Write a piece of text.

        Args:
            token: the text; may be empty. The halves of a surrogate pair in successive tokens are joined; a
                half alone, which UTF-8 cannot encode, becomes U+FFFD.
            final: finish the message with it.

        Raises:
            WrongType: ``token`` is not a string.
            PodiumError: the message is finished, or its turn is over.
        """
        if not isinstance(token, str):
            raise WrongType(f"stream_token takes a string, not {type(token).__name__}; call str() on it")
        if self.finished:
            raise ContextMisuse("this message was finished; begin another one with ctx.send_message")
        await self._write(self._whole(token))
        if final:
            await self.finish()

    async def finish(self) -> None:
        """Finish the message. Idempotent.

        Raises:
            PodiumError: its turn is over.
        """
        if self.finished:
            return
        self.finished = True
        if self._half:
            self._half = ""
            await self._write("\ufffd")
        self.sink.record(ASSISTANT_MESSAGE, self.record)
        await self.sink.publish({"type": "message_end", "reply_id": self.reply_id, "text": self.text})

    async def _write(self, text: str) -> None:
        if text:
            self._parts.append(text)
            await self.sink.publish({"type": "message_update", "reply_id": self.reply_id, "delta": text})

    def _whole(self, token: str) -> str:
        """Return text that UTF-8 can encode; keep back the first half of a pair at the end."""
        if token.isascii() and not self._half:
            return token
        text, self._half = self._half + token, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
