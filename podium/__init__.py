"""Podium, the agent: its base class, context, state, turns and activation.

It knows Chronicle, not Ray, HTTP, FUSE or SQL. What users import is here: classes for an agent's author, and errors
that callers catch. Each name is imported at its first use. Tests of agents have `podium.testing`, patches and documents
of states `podium.state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.agent.answer import Answer
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.agent.models.delta_state import DeltaState, migration
    from podium.agent.reply import Reply
    from podium.agent.retry import Retry
    from podium.errors import (
        AgentBusy,
        AgentLoadError,
        AskCycle,
        AskFailed,
        AskRefused,
        AskTimeout,
        InvalidAddress,
        Permanent,
        PodiumError,
        ProgramChanged,
        UnknownAgent,
        UnknownArtifact,
        UnknownMoment,
    )
    from podium.history.retention import Retention
    from podium.reminders.reminder import Reminder, ScheduledReminder
    from podium.state.errors import (
        InvalidState,
        InvalidValue,
        OutsideTurn,
        PatchError,
        StateError,
        StateLoadError,
        UnseenChange,
        UnstorableState,
        UnsupportedType,
    )
    from podium.turn.busy import BusyPolicy

__all__ = [
    "AgentBusy",
    "AgentContext",
    "AgentLoadError",
    "Answer",
    "AskCycle",
    "AskFailed",
    "AskRefused",
    "AskTimeout",
    "BaseAgent",
    "BusyPolicy",
    "DeltaState",
    "InvalidAddress",
    "InvalidState",
    "InvalidValue",
    "OutsideTurn",
    "PatchError",
    "Permanent",
    "PodiumError",
    "ProgramChanged",
    "Reminder",
    "Reply",
    "Retention",
    "Retry",
    "ScheduledReminder",
    "StateError",
    "StateLoadError",
    "UnknownAgent",
    "UnknownArtifact",
    "UnknownMoment",
    "UnseenChange",
    "UnstorableState",
    "UnsupportedType",
    "migration",
]

_MODULES: Final = {
    "AgentBusy": "podium.errors",
    "AgentContext": "podium.agent.context",
    "AgentLoadError": "podium.errors",
    "Answer": "podium.agent.answer",
    "AskCycle": "podium.errors",
    "AskFailed": "podium.errors",
    "AskRefused": "podium.errors",
    "AskTimeout": "podium.errors",
    "BaseAgent": "podium.agent.base",
    "BusyPolicy": "podium.turn.busy",
    "DeltaState": "podium.agent.models.delta_state",
    "InvalidAddress": "podium.errors",
    "InvalidState": "podium.state.errors",
    "InvalidValue": "podium.state.errors",
    "OutsideTurn": "podium.state.errors",
    "PatchError": "podium.state.errors",
    "PodiumError": "podium.errors",
    "Reminder": "podium.reminders.reminder",
    "Reply": "podium.agent.reply",
    "Permanent": "podium.errors",
    "ProgramChanged": "podium.errors",
    "Retention": "podium.history.retention",
    "Retry": "podium.agent.retry",
    "ScheduledReminder": "podium.reminders.reminder",
    "StateError": "podium.state.errors",
    "StateLoadError": "podium.state.errors",
    "UnknownAgent": "podium.errors",
    "UnknownArtifact": "podium.errors",
    "UnknownMoment": "podium.errors",
    "UnseenChange": "podium.state.errors",
    "UnstorableState": "podium.state.errors",
    "UnsupportedType": "podium.state.errors",
    "migration": "podium.agent.models.delta_state",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
