"""Answers to paused turns, and the end of pauses by time.

An answer is the end of the step at which the turn has paused: one transaction of the journal completes the step's
record and makes the message pending again. So it is taken once, and cannot be lost between the answer and the attempt
that goes on; whoever wakes the agent then only spares time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.errors import NotFound
from chronicle.journal.records import MessageStatus, PauseEnd
from podium.answer_schema import check_answer
from podium.errors import DecisionExpired, DecisionInvalid, RunNotFound, RunNotPaused
from podium.history.step_record import args_hash_of, closed, open_pause, pause_of, started_ms_of, step_of
from podium.messages.inbox import message_of
from podium.reminders.expiries import EXPIRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import Json
    from chronicle.ids import MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session, StoredStep
    from podium.history.step_record import PauseKind, PauseRecord

__all__ = ["Answer", "Question", "answer_run", "is_stale", "question_of"]

_ATTEMPTS: Final = 3
"""Of an answer: each that fails has seen that the request was open a moment ago."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a paused run."""

    value: Json
    by: str | None
    """Who answers, as the edge knows them."""
    call_id: str | None = None
    """The request that it is for; ``None`` for the one that is open."""
    args_hash: str | None = None
    """Of the request, if the answer is to be refused for another one."""
    promise: str | None = None
    """The name of the promise that it is for; ``None`` for what is open."""
    rejection: str | None = None
    """Why a promise is rejected: in place of the value."""
    request: str | None = None
    """The `Question.request` that it is for; ``None`` for what is open."""
    agent: str | None = None
    """The agent of the tenant that answers, ``type/key``: the promise must name it; ``None`` for others."""
    sent_ms: int | None = None
    """When that agent answered, in epoch milliseconds; see `is_stale`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a paused run waits for."""

    run_id: MessageId
    call_id: str
    kind: PauseKind
    promise: str | None
    """The name of a promise."""
    reason: str
    schema: Json
    """The JSON Schema of an answer."""
    expires_ms: int | None
    """Epoch milliseconds; ``None`` if it waits for ever."""
    request: str
    """Names this request: another one of the run, even for the same, has another one."""


def answer_run(store: JournalStore, session: Session, run_id: MessageId, answer: Answer, now_ms: int) -> None:
    """Answer a paused run of an agent. Durable on return; the caller wakes the agent.

    Args:
        run_id: the id of its message.
        now_ms: the time, if the journal has no clock of its own.

    Raises:
        RunNotFound: the agent has no such run.
        RunNotPaused: it does not wait for this answer: it is answered, has ended, or waits for something else.
        DecisionExpired: the answer is late.
        DecisionInvalid: it does not fit the schema, or is a rejection of something else than a promise.
        InvalidInput: it is too large.
    """
    for _ in range(_ATTEMPTS):
        end = _end(store, session, run_id, answer, now_ms)
        if store.end_pause(session.session_id, end, now_ms):
            return
    raise RunNotPaused(f"run {run_id} changes at this moment; look at it, and answer again")


def question_of(store: JournalStore, session: Session, run_id: MessageId, answer: Answer, now_ms: int) -> Question:
    """Return what a paused run waits for.

    Args:
        answer: names the request, if another one is to be refused; its value is not looked at.

    Raises:
        RunNotFound, RunNotPaused, DecisionExpired: as for `answer_run`.
    """
    step, pause, _ = _open(store, session, run_id, answer, now_ms)
    promise = step.key.rpartition("#")[0].removeprefix(step_of("")) if pause["kind"] == "promise" else None
    expires_ms, request = pause["expires"], _request_of(step)
    return Question(run_id, step.key, pause["kind"], promise, pause["reason"], pause["schema"], expires_ms, request)


def is_stale(steps: Sequence[StoredStep], promise: str, sent_ms: int) -> bool:
    """Whether an agent's answer was for an earlier promise of that name of its run, which has ended.

    The first one may be answered before it is asked for. A later one may not: the answer could be meant for the other.

    Args:
        steps: of the run, in order.
        sent_ms: when the agent answered, in epoch milliseconds.
    """
    of_name = [step for step in steps if step.key.rpartition("#")[0] == step_of(promise)]
    pauses = [pause_of(step.body) for step in of_name]
    if not any(pause is not None and "outcome" in pause for pause in pauses):
        return False
    is_open = pauses[-1] is not None and "outcome" not in pauses[-1]
    return not is_open or sent_ms < started_ms_of(of_name[-1].body)


def _request_of(step: StoredStep) -> str:
    """Return the hash of an open record, which has its times, its number and all that it asks."""
    return blake3(step.body).hexdigest(length=16)


def _open(
    store: JournalStore, session: Session, run_id: MessageId, answer: Answer, now_ms: int
) -> tuple[StoredStep, PauseRecord, int]:
    """Return the open step of a run, its pause, and the time, after all checks of whether the answer is for it."""
    try:
        message = message_of(store, session, run_id)
    except NotFound as error:
        raise RunNotFound(f"no run {run_id}: {error}") from error
    if message.status is not MessageStatus.PAUSED:
        raise RunNotPaused(f"run {run_id} waits for no answer: it is {message.status}")
    steps = store.steps(run_id)
    step = steps[-1] if steps else None
    pause = open_pause(step.body) if step is not None else None
    if step is None or pause is None:
        raise RunNotPaused(f"run {run_id} waits for no answer: it was answered or dropped at this moment")
    if pause["kind"] == "sleep":
        raise RunNotPaused(f"run {run_id} sleeps until its time; nobody answers it")
    if answer.call_id not in (None, step.key):
        raise RunNotPaused(f"run {run_id} does not wait at {answer.call_id}, but at {step.key}")
    if answer.promise is not None and step.key.rpartition("#")[0] != step_of(answer.promise):
        raise RunNotPaused(f"run {run_id} does not wait for the promise {answer.promise}, but at {step.key}")
    if answer.promise is not None and answer.sent_ms is not None and is_stale(steps, answer.promise, answer.sent_ms):
        raise RunNotPaused(f"run {run_id} asks for {answer.promise} again, at {step.key}, since the answer was sent")
    if answer.agent is not None and answer.agent not in pause.get("agents", ()):
        raise RunNotPaused(f"run {run_id} waits at {step.key} for nothing that {answer.agent} may answer")
    if answer.args_hash not in (None, args_hash_of(step.body)):
        raise RunNotPaused(f"run {run_id} asks something else at {step.key} than what was answered")
    if answer.request not in (None, _request_of(step)):
        raise RunNotPaused(f"run {run_id} asks something else at {step.key} than what this is for")
    at_ms = store.now_ms(now_ms)
    if pause["expires"] is not None and at_ms >= pause["expires"]:
        raise DecisionExpired(f"run {run_id} waited for {step.key} until {pause['expires']}; the answer is late")
    return step, pause, at_ms


def _end(store: JournalStore, session: Session, run_id: MessageId, answer: Answer, now_ms: int) -> PauseEnd:
    """Return what ends the pause of a run, after all checks but that it is still open then."""
    step, pause, at_ms = _open(store, session, run_id, answer, now_ms)
    if answer.rejection is None:
        check_answer(pause["schema"], answer.value)
        after = closed(step.body, "answered", answer.value, answer.by, at_ms)
    elif pause["kind"] == "promise":
        after = closed(step.body, "rejected", None, answer.by, at_ms, answer.rejection)
    else:
        raise DecisionInvalid(f"run {run_id} waits for a decision at {step.key}: only a promise can be rejected")
    return PauseEnd(
        run_id,
        step.number,
        step.body,
        after,
        until_ms=pause["expires"],
        reminder=EXPIRY if pause["expires"] is not None else None,
    )
