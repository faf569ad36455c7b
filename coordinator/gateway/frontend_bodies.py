"""The bodies that front ends of others send, and the message in them.

Front ends add fields of their own, so unknown ones are ignored. Of the messages only the last one of the user is read.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coordinator.frontends.ag_ui import content_text
from coordinator.frontends.ai_sdk import text_of
from coordinator.frontends.conversation import SentMessage
from coordinator.gateway.errors import ApiError
from coordinator.operations.problems import Problem
from podium.turn.busy import BusyPolicy
from podium.validation import reason_of

__all__ = ["AgUiBody", "UiBody"]

_INVALID: Final = Problem(400, "invalid_parameter")
_T = TypeVar("_T", bound=BaseModel)
_Id = Annotated[str, Field(min_length=1, max_length=256)]
_MAX_PARTS: Final = 1000


class _Open(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class _UiMessage(_Open):
    id: _Id
    role: Literal["user"]
    parts: Annotated[list[dict[str, Any]], Field(max_length=_MAX_PARTS)]


class UiBody(_Open):
    """A request of the AI SDK's `DefaultChatTransport`."""

    id: _Id
    """The chat; at `/v1/ui/{type}` it is the key of the agent, and must be one."""
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    """`UIMessage` objects. Only the last one of the user is read: the history is the agent's."""
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    """`regenerate-message`: take the last message of the user and all that followed back, and handle it again."""
    messageId: Annotated[str, Field(max_length=256)] | None = None  # noqa: N815  the wire's name
    """Of a submitted message: it replaces the earlier one of this id. Of a regeneration: the answer to be replaced."""
    when_busy: BusyPolicy = BusyPolicy.ENQUEUE
    """As of any message."""
    cancel_on_disconnect: bool = Field(default=False, strict=True)
    """Whether to cancel the message if the client leaves before its answer: then `stop()` stops the agent, and a lost
    connection does, too."""

    def sent(self) -> SentMessage:
        """Return the message of the user.

        Raises:
            ApiError: there is none, or it is not a message of a user.
        """
        at = len(self.messages) - 1
        if self.trigger == "regenerate-message":
            at = _last_of_user(self.messages)
        message = _checked(_UiMessage, self.messages[at], at)
        text = text_of(message.parts)
        about: dict[str, Any] = {"id": message.id, "chat": self.id}
        if any(part.get("type") != "text" for part in message.parts):
            about["parts"] = message.parts
        return SentMessage("ui", self.id, message.id, {"text": text, "ui": about})

    @property
    def edits(self) -> bool:
        """Whether a submitted message replaces an earlier one."""
        return self.trigger == "submit-message" and self.messageId is not None


class _AgUiMessage(_Open):
    id: _Id
    role: Literal["user"]
    content: str | Annotated[list[dict[str, Any]], Field(max_length=_MAX_PARTS)]


class AgUiBody(_Open):
    """AG-UI's `RunAgentInput`."""

    threadId: _Id  # noqa: N815  the wire's names
    """The thread; at `/v1/ag-ui/{type}` it is the key of the agent, and must be one."""
    runId: _Id  # noqa: N815
    """A repetition of a run is answered by the run."""
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    """Only the last one of the user is read: the history is the agent's. If a new run has one that the agent has
    already, it is handled again, from before it."""
    parentRunId: _Id | None = None  # noqa: N815
    """The run that this one continues from. An earlier one of the thread forks the agent."""
    protocolVersion: Annotated[str, Field(max_length=32)] | None = None  # noqa: N815
    state: Any = None
    """Ignored, unless the agent's class accepts it (`accepts_client_state`)."""
    context: Annotated[list[dict[str, Any]], Field(max_length=_MAX_PARTS)] | None = None
    """For the agent, as it is."""
    tools: list[dict[str, Any]] | None = None
    """Ignored: agents do not call tools of front ends."""
    forwardedProps: Any = None  # noqa: N815
    """For the agent, as they are."""
    resume: list[dict[str, Any]] | None = None
    """Answers to interrupts. No run is interrupted, so there can be none."""

    def sent(self, *, with_state: bool) -> SentMessage:
        """Return the message of the user.

        Raises:
            ApiError: there is none, or it is not a message of a user; or the body answers interrupts.
        """
        if self.resume:
            raise ApiError(Problem(400, "no_open_interrupt"), "the thread has no open interrupt", "resume")
        at = len(self.messages) - 1
        if self.messages[at].get("role") == "assistant":  # what a run that was cut off, or failed, has left
            at = _last_of_user(self.messages)
        message = _checked(_AgUiMessage, self.messages[at], at)
        about: dict[str, Any] = {"id": message.id, "thread": self.threadId, "run": self.runId}
        if self.parentRunId is not None:
            about["parent_run"] = self.parentRunId
        if not isinstance(message.content, str):
            about["parts"] = message.content
        if self.context:
            about["context"] = self.context
        if self.forwardedProps not in (None, {}):
            about["forwarded_props"] = self.forwardedProps
        if with_state and self.state is not None:
            about["state"] = self.state
        return SentMessage("ag_ui", self.threadId, message.id, {"text": content_text(message.content), "ag_ui": about})

    @property
    def knows_cancelled(self) -> bool:
        """Whether the client speaks a version that has the outcome ``cancelled``."""
        major = (self.protocolVersion or "").partition(".")[0]
        return major.isascii() and major.isdigit() and int(major) >= 1


def _last_of_user(messages: list[dict[str, Any]]) -> int:
    """Return the place of the last message of the user; without one, the last place."""
    last = len(messages) - 1
    return next((at for at in range(last, -1, -1) if messages[at].get("role") == "user"), last)


def _checked(kind: type[_T], message: dict[str, Any], at: int) -> _T:
    try:
        return kind.model_validate(message)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(("messages", str(at), *(str(part) for part in first["loc"])))
        if first["loc"] == ("role",):
            raise ApiError(Problem(400, "no_user_message"), "the last message must be one of the user", place) from None
        raise ApiError(_INVALID, f"{place}: {reason_of(first['msg'])}", place) from None
