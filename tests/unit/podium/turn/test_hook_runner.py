"""Hooks under a deadline: whatever they do becomes one failure, and only the message that is meant is stopped."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from chronicle.ids import MessageId
from podium.turn.hooks.hook_runner import AttemptFailed, HookRunner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIMIT_S = 600.0


async def leaves_with_an_exit_code() -> None:
    sys.exit(4)


async def interrupts() -> None:
    raise KeyboardInterrupt


async def raises_what_is_no_exception() -> None:
    class Odd(BaseException):
        """Not an `Exception`."""

    raise Odd


async def cancels_itself() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("hook", [leaves_with_an_exit_code, interrupts, raises_what_is_no_exception, cancels_itself])
async def test_what_would_end_the_event_loop_is_a_failed_try(hook: Callable[[], Awaitable[None]]) -> None:
    hooks = HookRunner("a", ManualClock())
    with pytest.raises(AttemptFailed):
        await hooks.call(hook, LIMIT_S, MessageId("m"))
    assert hooks.deadline_s is None


async def test_why_its_time_is_over() -> None:
    hooks = HookRunner("a", ManualClock())
    said: list[str] = []

    async def asked() -> None:
        said.append(hooks.deadline_reason)
        hooks.expire_deadline("m")
        said.append(hooks.deadline_reason)

    await hooks.call(asked, LIMIT_S, MessageId("m"))
    assert said == ["its limit of 600 s", "it was cancelled"]


async def test_taking_a_message_back_makes_it_due_at_once() -> None:
    clock = ManualClock()
    hooks = HookRunner("a", clock)
    seen: list[float | None] = []

    async def stubborn() -> None:
        hooks.cancel("m")
        seen.append(hooks.deadline_s)
        await asyncio.Event().wait()

    with pytest.raises(AttemptFailed) as failed:
        await hooks.call(stubborn, LIMIT_S, MessageId("m"))
    assert failed.value.cancelled
    assert seen == [clock.monotonic_s()]


async def test_taking_back_a_message_that_waits_leaves_the_running_one_alone() -> None:
    clock = ManualClock()
    hooks = HookRunner("a", clock)

    async def hook() -> float | None:
        hooks.cancel("waits")
        hooks.expire_deadline("waits")
        await asyncio.sleep(0)
        return hooks.deadline_s

    assert await hooks.call(hook, LIMIT_S, MessageId("runs")) == clock.monotonic_s() + LIMIT_S
    assert hooks.is_cancelled("waits")
