"""Delivering what turns sent to other agents: from the journal's outbox into the receivers' inboxes.

Delivery comes after the commit that sent a message, at least once: whoever notices a message in the outbox may deliver
it, and a courier that dies between the two steps leaves it there for the next one. A message's own id is its
idempotency key, so a repeat is dropped by the receiver's inbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import InboxFull, Unavailable
from chronicle.journal.records import NewMessage
from podium.address import Address

if TYPE_CHECKING:
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore

__all__ = ["deliver_outbox"]

_BATCH: Final = 1000

_log = structlog.stdlib.get_logger("podium.messages.courier")


def deliver_outbox(store: JournalStore, ids: IdSource, now_ms: int, inbox_limit: int = 1000) -> list[Address]:
    """Put the outbox's messages into their receivers' inboxes, oldest first.

    What a full inbox refuses stays in the outbox for the next time.

    Returns:
        the receivers that have something new, each once: they are to be woken.

    Raises:
        Unavailable: the store is away and nothing was delivered; nothing is lost.
    """
    receivers: dict[Address, None] = {}
    try:
        for message in store.outbox(_BATCH):
            session = store.ensure_session(message.target, ids.session(now_ms), ids.branch(now_ms), now_ms)
            arriving = NewMessage(message.message_id, message.body, now_ms, message.message_id, message.sender)
            try:
                store.admit(session.session_id, arriving, limit=inbox_limit)
            except InboxFull as error:
                _log.warning("inbox_full", agent_id=message.target, sender=message.sender, error=str(error))
                continue
            receivers[Address.parse(message.target)] = None
            store.outbox_delivered(message.message_id)
    except Unavailable as error:
        # Those who have something new must hear of it now: what was delivered is not in the outbox the next time.
        if not receivers:
            raise
        _log.warning("outbox_delivered_in_part", receivers=len(receivers), error=str(error))
    return list(receivers)
