"""`Answer`: what another agent answered, and the parts of an answer that is read while it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["Answer", "AnswerEvent", "AnswerPart", "AnswerText", "AnswerVoided", "Answered"]

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of another agent to `AgentContext.ask`."""

    agent: str
    """Its address."""
    message_id: str
    """The question's id in its inbox."""
    turn: int
    """The turn that answered."""
    text: str
    """Its replies, concatenated."""
    data: Any
    """The result that it set by `AgentContext.reply`; ``None`` without one."""


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A piece of a reply."""

    text: str
    reply: int
    """The number of the reply, from 1."""


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """An event that the agent emitted (`AgentContext.emit`). Some may be missing, and those beyond 1 MiB are."""

    name: str
    data: Any


@dataclass(frozen=True, slots=True)
class AnswerVoided:
    """The attempt that the parts before are of has failed or was lost; those of another attempt follow."""


@dataclass(frozen=True, slots=True)
class Answered(Generic[R_co]):
    """The last part: the agent's turn is committed."""

    answer: Answer
    result: R_co
    """What the handler returned; without one ``answer.data``."""


AnswerPart: TypeAlias = AnswerText | AnswerEvent | AnswerVoided | Answered[R_co]
"""A part of an answer."""
