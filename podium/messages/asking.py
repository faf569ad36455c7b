"""Asking: puts a question into another agent's inbox and waits for its outcome in the journal.

The journal is the one thing that outlives every process on the way, so the outcome is read there: the host of the
receiver, the coordinator and the asker itself may die meanwhile. Looking costs a read of one row.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError, IdempotencyConflict, InboxFull, NotFound, Unavailable
from chronicle.journal.records import MessageStatus
from podium.address import Address, label
from podium.errors import AskRefused, PodiumError
from podium.messages.ask_circles import find_circle
from podium.tasks import BackgroundTasks
from podium.turn.journal.frames import settled_frames

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import InboxMessage, NewMessage, Receipt, Session
    from podium.blocking import BlockingRunner
    from podium.turn.stream import Frame

__all__ = ["StoreAsker"]

_FIRST_LOOK_S: Final = 0.002
_LONGEST_LOOK_S: Final = 0.1
"""Interval of looks for the outcome: it grows with the time that the answer takes, so the delay is a tenth of that."""
_WAKE_EVERY_S: Final = 2.0
"""Interval at which the receiver is woken again: a wake may be lost with the coordinator, or with the host. The
coordinator wakes the receiver if the asker's process dies before the first one."""
_FULL_S: Final = 0.5
"""Pause before a full inbox is tried again."""

_log = structlog.stdlib.get_logger("podium.messages.asking")


class StoreAsker:
    """Asks agents by the journal; a `podium.turn.ports.Asker`.

    Args:
        wake: has an agent check its inbox; it may be lost.
        inbox_limit: the most messages that may wait in an inbox.
        check: raises an error of Podium if the receiver may not be asked, and for an agent that does not exist, not be
            made; ``None``: each may.
    """

    def __init__(
        self,
        store: JournalStore,
        blobs: BlobReader,
        ids: IdSource,
        run_store: BlockingRunner,
        wake: Callable[[Address], Awaitable[None]],
        inbox_limit: int = 1000,
        check: Callable[[Address], None] | None = None,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._ids = ids
        self._run_store = run_store
        self._wake = wake
        self._inbox_limit = inbox_limit
        self._check = check
        self._tasks = BackgroundTasks()

    async def ask(
        self,
        asker: Address,
        receiver: Address,
        question: NewMessage,
        noticed: Callable[[Sequence[str]], None],
        admitted: Callable[[MessageId], None] = lambda _: None,
    ) -> tuple[str, Sequence[Frame]]:
        """Admit a question, unless it was admitted before, and wait for its outcome; see `podium.turn.ports.Asker`."""
        await self._run_store(self._allow, receiver, question)
        session = await self._run_store(
            self._store.ensure_session,
            receiver.name,
            self._ids.session(question.admitted_ms),
            self._ids.branch(question.admitted_ms),
            question.admitted_ms,
            receiver.tenant,
        )
        message = await self._admitted(session, question)
        admitted(message.message_id)
        loop = asyncio.get_running_loop()
        began_s = woken_s = loop.time()
        circle: Sequence[str] | None = None
        while not message.status.is_settled:
            now_s = loop.time()
            if now_s - woken_s >= _WAKE_EVERY_S:
                if circle is None:  # it takes long
                    circle = await self._circle(asker, receiver, question.admitted_ms + round((now_s - began_s) * 1000))
                    if circle is not None:
                        noticed(circle)
                woken_s = now_s
                await self._wake(receiver)
            await asyncio.sleep(max(_FIRST_LOOK_S, min(_LONGEST_LOOK_S, (now_s - began_s) / 10)))
            message = await self._look(message)
        frames = await self._run_store(
            settled_frames, self._store, self._blobs, session.main_branch_id, message.message_id
        )
        return message.message_id, frames

    def _allow(self, receiver: Address, question: NewMessage) -> None:
        """Check whether the receiver may be asked; a question that an earlier attempt has sent is not asked again."""
        if self._check is None:
            return
        try:
            self._check(receiver)
        except PodiumError as error:
            if not self._was_sent(receiver, question):
                raise AskRefused(f"{receiver} was not asked: {error}") from error

    def _was_sent(self, receiver: Address, question: NewMessage) -> bool:
        try:
            session = self._store.session(receiver.name, receiver.tenant)
            self._store.admit(session.session_id, question, limit=0)  # so that a new one is refused
        except (NotFound, InboxFull, IdempotencyConflict):
            return False
        return True

    async def _admitted(self, session: Session, question: NewMessage) -> InboxMessage:
        """Return the question in the inbox.

        It is another one than that of an earlier attempt if that was cancelled, as after its deadline, or asked
        something else: nothing makes a program that got no answer ask the same again.
        """
        number = 1
        key = question.idempotency_key
        while True:
            try:
                receipt = await self._send(session, question)
                message = await self._run_store(self._store.message, receipt.message_id)
            except InboxFull as error:
                _log.info("inbox_full", agent_id=label(session), error=str(error))
                await asyncio.sleep(_FULL_S)
                continue
            except IdempotencyConflict:
                pass
            else:
                if not receipt.repeated or message.status is not MessageStatus.CANCELLED:
                    return message
            number += 1
            question = replace(question, idempotency_key=f"{key}:{number}")

    async def _send(self, session: Session, question: NewMessage) -> Receipt:
        """Admit a question, and have its receiver woken, also if the asker's turn is cancelled meanwhile."""
        sending = self._tasks.start(self._admit_and_wake(session, question), "sending a question")
        sending.add_done_callback(_retrieve)
        return await asyncio.shield(sending)

    async def _admit_and_wake(self, session: Session, question: NewMessage) -> Receipt:
        receipt = await self._run_store(self._store.admit, session.session_id, question, self._inbox_limit)
        await self._wake(Address.of(session))
        return receipt

    async def _circle(self, asker: Address, receiver: Address, now_ms: int) -> Sequence[str] | None:
        try:
            circle = await self._run_store(find_circle, self._store, asker.name, receiver.name, receiver.tenant, now_ms)
        except ChronicleError as error:
            _log.warning("store_unavailable", error=str(error))
            return None
        if circle is not None:
            _log.warning("agents_wait_for_each_other", path=" -> ".join(circle))
        return circle

    async def _look(self, message: InboxMessage) -> InboxMessage:
        try:
            return await self._run_store(self._store.message, message.message_id)
        except Unavailable as error:
            _log.warning("store_unavailable", error=str(error))
            return message


def _retrieve(sending: asyncio.Task[Receipt]) -> None:
    """Mark an error of a sending as retrieved: the asker may be gone."""
    if not sending.cancelled():
        sending.exception()
