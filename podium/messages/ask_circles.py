"""Circles of agents that wait for each other in different turns: found in their inboxes, and told, not refused.

An agent handles its messages one after the other. So a question that an agent has asked and that waits behind a message
whose turn waits for that agent is not answered before one of them stops waiting. Nothing proves that none will: a turn
may end without the answer of a question that it has asked, as with ``asyncio.wait`` or a timeout of its own. Therefore
such a circle is told in the log, and in the error of the question whose time is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.errors import NotFound
from podium.address import Address
from podium.messages.headers import ask_in, question_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import InboxMessage

__all__ = ["find_circle"]

_MAX_AGENTS: Final = 100
"""Agents whose inboxes are read: of those that wait for the asker, directly or not, mostly none."""
_MAX_MESSAGES: Final = 100
"""Messages of each inbox that are read."""


def find_circle(store: JournalStore, asker: str, receiver: str, tenant: str, now_ms: int) -> Sequence[str] | None:
    """Return the circle that a question closes, from the receiver over the asker to the receiver; ``None`` without one.

    Args:
        asker: the name of the agent that waits for the receiver's answer.
        tenant: of all of them.
        now_ms: questions whose time is over are waited for by nobody.

    Raises:
        ChronicleError: the journal cannot be read.
    """
    towards: dict[str, str] = {asker: ""}
    """The agents that wait for the asker: by each of them, the next one on the way to it."""
    waiting = [asker]
    for name in waiting:
        if len(towards) > _MAX_AGENTS:
            return None
        for question, other in _questions(store, name, tenant, now_ms):
            if other in towards or not _is_running(store, other, tenant, question):
                continue
            towards[other] = name
            if other == receiver:
                return _path(towards, receiver)
            waiting.append(other)
    return None


def _questions(store: JournalStore, name: str, tenant: str, now_ms: int) -> Iterator[tuple[InboxMessage, str]]:
    """Yield the questions that an agent has not answered, each with the agent that asks it."""
    for message in _pending(store, name, tenant, _MAX_MESSAGES):
        asked = ask_in(message.headers)
        if asked is not None and asked.deadline_ms > now_ms:
            yield message, Address.parse(asked.path[-1]).name


def _is_running(store: JournalStore, name: str, tenant: str, question: InboxMessage) -> bool:
    """Whether an agent still has the message whose turn has asked a question."""
    handled = [message.message_id for message in _pending(store, name, tenant, 1)]
    return any((question.idempotency_key or "").startswith(question_key(each, "")) for each in handled)


def _pending(store: JournalStore, name: str, tenant: str, limit: int) -> Sequence[InboxMessage]:
    try:
        return store.pending(store.session(name, tenant).session_id, limit)
    except NotFound:
        return ()


def _path(towards: dict[str, str], receiver: str) -> Sequence[str]:
    path, name = [receiver], towards[receiver]
    while name:
        path.append(name)
        name = towards[name]
    return [*path, receiver]
