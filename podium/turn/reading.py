"""Reads: calls of read-only handlers beside the turns of an agent.

A read has a state of its own, that of the last commit, so it sees nothing of a turn that runs or is paused. It is no
turn and no message of the record: nothing is admitted, committed or repeated, and who asked asks again if its host
dies. It runs on the agent's instance, on the event loop of its hooks.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Never, cast

import structlog

from podium.agent.context import AgentContext
from podium.agent.handler_specs import read_only_handler
from podium.caller import NOBODY, Caller
from podium.errors import InvalidMessage, ReadFailed, ReadOnly
from podium.state import OutsideTurn, StateError, from_json
from podium.state.access import freeze
from podium.state.guard import Permit, use_permit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import Json
    from podium.agent.base import BaseAgent
    from podium.agent_record import AgentRecord

__all__ = ["Read", "in_read", "read"]

_REFUSED: Final = (
    "a read-only handler reads the state of the last commit and the configuration, and returns a result; it changes "
    "and sends nothing, and has no files"
)
_MAX_ERROR_TEXT: Final = 2000
"""Characters of an exception's text that are told; the agent's log has the rest."""

_READS: Final[ContextVar[bool]] = ContextVar("podium_reads", default=False)

_log = structlog.stdlib.get_logger("podium.turn.reading")


@dataclass(frozen=True, slots=True)
class Read:
    """The answer of a read-only handler."""

    turn: int
    """The turn whose state it has read."""
    data: Json
    """Its result; ``None`` without one."""


@dataclass(frozen=True, slots=True)
class _ReadHook:
    """A hook that handles no message of the record."""

    caller: Caller
    """As in a hook without a message: of the tenant, and without scopes."""
    message: None = None
    message_id: None = None


@dataclass(frozen=True, slots=True)
class _ReadTurn:
    """The turn that a read has read."""

    number: int
    traceparent: str | None = None


class _ReadScope:
    """The scope of a read: it has no capabilities."""

    def __init__(self, turn: int, tenant: str) -> None:
        self.turn = _ReadTurn(turn)
        self.hook = _ReadHook(replace(NOBODY, tenant=tenant))

    def __getattr__(self, name: str) -> Never:
        raise ReadOnly(_REFUSED)


class _NoFiles:
    """The workspace of a read: that of the agent may be in the middle of a turn."""

    @property
    def root(self) -> Never:
        raise ReadOnly(_REFUSED)


def in_read() -> bool:
    """Whether the caller is the code of a read-only handler, or of a task or thread that it has started."""
    return _READS.get()


async def read(
    agent: BaseAgent, record: AgentRecord, config: Mapping[str, Json], message: dict[str, Any], limit_s: float
) -> Read:
    """Call the read-only handler that a message names.

    Args:
        agent: whose handler is called.
        record: the agent at its last commit.
        limit_s: the time limit of the handler, in seconds.

    Raises:
        InvalidMessage: the message does not fit, or names no read-only handler.
        ReadOnly: the handler tried to change or to send something.
        ReadFailed: it raised, or took too long.
        StateError: the state does not fit the class.
    """
    cls = type(agent)
    spec, argument = read_only_handler(cls, message)
    state = from_json(cls.State, record.state, record.schema_version)
    freeze(state, _REFUSED)
    scope, files = cast("Any", _ReadScope(record.turn, record.address.tenant)), cast("Any", _NoFiles())
    context: AgentContext[Any] = AgentContext(scope, record.address, state, files, config)
    limit = asyncio.timeout(limit_s)
    token = _READS.set(True)
    try:
        with use_permit(Permit(f"a read of {record.address}")):  # also for the state of a turn that runs
            async with limit:
                result = await getattr(agent, spec.name)(context, argument)
        return Read(record.turn, spec.plain_result(result) if spec.result is not None else None)
    except OutsideTurn as error:
        raise ReadOnly(str(error)) from error
    except (ReadOnly, InvalidMessage, StateError):
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise ReadFailed(f"{spec.name} took longer than its limit of {limit_s:g} s") from error
        _log.info("read_failed", agent_id=str(record.address), exc_info=error)
        raise ReadFailed(f"{type(error).__name__}: {error}"[:_MAX_ERROR_TEXT]) from error
    finally:
        _READS.reset(token)
