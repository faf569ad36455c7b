"""Answers of agents to the promises of others (``ctx.resolve``): a message of the outbox that ends a pause.

It is sent by the commit of its turn as any other message, and never gets into an inbox, where it would wait behind the
run that waits for it. So the courier delivers it past messages to the same agent that a full inbox holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from chronicle.errors import InvalidInput, NotFound
from chronicle.ids import MessageId
from podium.address import Address
from podium.answer_message import AnswerMessage
from podium.errors import DecisionExpired, DecisionInvalid, RunNotFound, RunNotPaused
from podium.messages.answers import Answer, answer_run, is_stale

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import OutboxMessage

__all__ = ["deliver_answer"]

_log = structlog.stdlib.get_logger("podium.messages.promised")


def deliver_answer(store: JournalStore, message: OutboxMessage, now_ms: int) -> str | None:
    """Answer the promise of another agent. Durable on return.

    One whose run has ended, or does not exist, is dropped, with a line in the log, as is one for a promise that has
    ended: it is not for the next one of that name. One that the run does not wait for
    yet stays in the outbox, as does one that is refused: a person may look at it, and answer.

    Returns:
        why it stays; ``None`` if it was taken or dropped.

    Raises:
        Unavailable: the store is unavailable; nothing was changed.
    """
    try:
        run_id, answer = _read(message)
        session = store.session(message.target, message.namespace)
        answer_run(store, session, run_id, answer, now_ms)
    except (NotFound, RunNotFound) as error:
        _note_dropped(message, str(error))
    except RunNotPaused as error:
        is_late = is_stale(store.steps(run_id), answer.promise or "", message.created_ms)
        if is_late or store.message(run_id).status.is_settled:
            _note_dropped(message, str(error))
            return None
        return f"an answer of {message.sender} waits: {error}"
    except (DecisionExpired, DecisionInvalid, InvalidInput) as error:
        return f"an answer of {message.sender} is not taken: {error}"
    return None


def _read(message: OutboxMessage) -> tuple[MessageId, Answer]:
    found, sender = AnswerMessage.from_body(message.body), Address.parse(message.sender or "")
    if sender.tenant != message.namespace:
        raise InvalidInput(f"{sender} answers a run of the tenant {message.namespace}")
    of = {"promise": found.promise, "rejection": found.rejection, "agent": sender.name}
    return MessageId(found.run_id), Answer(found.value, str(sender), sent_ms=message.created_ms, **of)


def _note_dropped(message: OutboxMessage, why: str) -> None:
    _log.info("answer_dropped", agent_id=message.target, message_id=message.message_id, why=why)
