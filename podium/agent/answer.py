"""`Answer`: what another agent answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


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
