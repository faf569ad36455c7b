"""The courier: delivers messages from the journal's outbox to the receivers' inboxes.

Delivery follows the commit that sent a message, at least once: any process may deliver a message in the outbox, and a
courier that crashes between the two steps leaves it there for the next one. A message's id is its idempotency key, so
the receiver's inbox drops duplicates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import InboxFull, Unavailable
from chronicle.journal.records import NewMessage
from podium.address import Address, label

if TYPE_CHECKING:
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore

__all__ = ["deliver_outbox"]

_BATCH: Final = 1000

_log = structlog.stdlib.get_logger("podium.messages.courier")


def deliver_outbox(store: JournalStore, ids: IdSource, now_ms: int, inbox_limit: int = 1000) -> list[Address]:
    """Deliver the messages of the outbox, oldest first.

    Messages that a full inbox refuses stay in the outbox for the next delivery.

    Returns:
        the receivers with new messages, each once: the caller wakes them.

    Raises:
        Unavailable: the store is unavailable and nothing was delivered; nothing is lost.
    """
    receivers: dict[Address, None] = {}
    try:
        for message in store.outbox(_BATCH):
            session = store.ensure_session(
                message.target, ids.session(now_ms), ids.branch(now_ms), now_ms, message.namespace
            )
            arriving = NewMessage(message.message_id, message.body, now_ms, message.message_id, message.sender)
            try:
                store.admit(session.session_id, arriving, limit=inbox_limit)
            except InboxFull as error:
                _log.warning("inbox_full", agent_id=label(session), sender=message.sender, error=str(error))
                continue
            receivers[Address.of(session)] = None
            store.outbox_delivered(message.message_id)
    except Unavailable as error:
        # Return the receivers so far: their messages are no longer in the outbox at the next delivery.
        if not receivers:
            raise
        _log.warning("outbox_delivered_in_part", receivers=len(receivers), error=str(error))
    return list(receivers)
