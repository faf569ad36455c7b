"""Pauses of a turn, as the code of its hook begins them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import InvalidInput
from podium.answer_schema import NO_DEFAULT, check_schema
from podium.durations import seconds_of
from podium.errors import ContextMisuse, DecisionExpired, DecisionInvalid, PromiseRejected
from podium.messages.headers import ask_in
from podium.state.plain_json import sent_json
from podium.turn.steps.pausing import PauseRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from chronicle.canonical import Json
    from podium.address import Address
    from podium.history.step_record import PauseKind, StepRecord
    from podium.turn.scope.open_turn import RunningHook

__all__ = ["Pauses", "check_promise_name"]

_LONGEST_REASON: Final = 2_000
_PROMISE: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")


class Pauses:
    """The pauses of one hook."""

    def __init__(self, hook: RunningHook) -> None:
        self._hook = hook

    async def decide(self, schema: Any, reason: str, timeout: timedelta | float | str | None, default: Any) -> Any:
        """Pause the turn until somebody decides; see `AgentContext.decide`."""
        return await self._answer("decide", "", schema, reason, timeout, default)

    async def promise(
        self,
        name: str,
        schema: Any,
        reason: str,
        timeout: timedelta | float | str | None,
        default: Any,
        agents: Sequence[Address],
    ) -> Any:
        """Pause the turn until a promise is resolved or rejected; see `AgentContext.promise`."""
        check_promise_name(name)
        names = tuple(sorted({agent.name for agent in agents}))
        return await self._answer("promise", name, schema, reason, timeout, default, names)

    async def _answer(
        self,
        kind: PauseKind,
        promise: str,
        schema: Any,
        reason: str,
        timeout: timedelta | float | str | None,
        default: Any,
        agents: tuple[str, ...] = (),
    ) -> Any:
        if type(reason) is not str or len(reason) > _LONGEST_REASON:
            raise InvalidInput(f"a {kind} has a reason, a text of at most {_LONGEST_REASON} characters")
        adapter = None
        if not isinstance(schema, dict | bool):
            adapter, schema = _adapter(schema)
        plain = sent_json(schema, kind)
        check_schema(plain)
        record = await self._pause(kind, reason, plain, timeout, promise, agents)
        assert record.pause is not None, "it is the step of a pause"
        match record.pause.get("outcome"):
            case "rejected":
                raise PromiseRejected(record.pause.get("error", ""))
            case "expired" if default is NO_DEFAULT:
                raise DecisionExpired(f"nobody answered {record.key} in time: {reason}")
            case "expired":
                return default
        return record.result if adapter is None else _typed(adapter, record.result)

    async def sleep(self, duration: timedelta | float | str) -> None:
        """Pause the turn for a time; see `AgentContext.sleep`."""
        await self._pause("sleep", "", False, duration)

    async def _pause(
        self,
        kind: PauseKind,
        reason: str,
        schema: Json,
        timeout: timedelta | float | str | None,
        promise: str = "",
        agents: tuple[str, ...] = (),
    ) -> StepRecord:
        turn = self._hook.turn
        turn.check_open()
        if turn.steps is None:
            raise ContextMisuse("this hook handles no message, so its turn cannot pause; pause in on_message")
        if self._hook.step_prefix:
            raise ContextMisuse("on_steer cannot pause the turn that it steers; pause in on_message")
        expires_ms = None
        if timeout is not None:
            expires_ms = turn.env.clock.now_ms() + math.ceil(seconds_of(timeout, "a pause") * 1000)
        if (asked := ask_in(self._hook.message.headers if self._hook.message else None)) is not None:
            # Then nobody waits for the answer any more, and the message is dropped.
            expires_ms = min(expires_ms or asked.deadline_ms, asked.deadline_ms)
        record = await turn.steps.pause(PauseRequest(kind, reason, schema, expires_ms, promise, agents))
        assert record.pause is not None, "it is the step of a pause"
        ended = {"outcome": record.pause.get("outcome"), "by": record.pause.get("by")}
        self._hook.send({"type": "agent_resume", "call_id": record.key, **ended})
        return record


def check_promise_name(name: object) -> None:
    """Check the name of a promise.

    Raises:
        InvalidInput: it cannot be used.
    """
    if not isinstance(name, str) or _PROMISE.fullmatch(name) is None:
        raise InvalidInput(f"{name!r} cannot name a promise: take up to 100 letters, digits and . _ - after a letter")


def _adapter(answer_type: Any) -> tuple[Any, Any]:
    """Return what reads an answer of a type, and its JSON Schema."""
    from pydantic import TypeAdapter  # noqa: PLC0415
    from pydantic.errors import PydanticUserError  # noqa: PLC0415

    try:
        adapter = TypeAdapter(answer_type)
        return adapter, adapter.json_schema()
    except PydanticUserError as error:
        raise DecisionInvalid(f"{answer_type!r} has no JSON Schema: {error.message}") from error


def _typed(adapter: Any, answer: Json) -> Any:
    from pydantic import ValidationError  # noqa: PLC0415

    from chronicle.canonical import encode  # noqa: PLC0415

    try:
        return adapter.validate_json(encode(answer))
    except ValidationError as error:
        raise DecisionInvalid(f"the answer does not fit its type: {error}") from error
