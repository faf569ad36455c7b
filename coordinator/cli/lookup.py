"""The agent, or the moment of one, that an argument names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from chronicle.errors import NotFound
from coordinator.operations.suggestions import nearest
from podium.address import Address, label
from podium.errors import InvalidAddress, UnknownAgent, UnknownMoment

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import Session

__all__ = ["find_address", "find_agent", "is_agent", "split_moment"]

_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


def find_address(store: JournalStore, name: str) -> Address:
    """Return the address of an agent that exists, or that other agents have sent messages to.

    Raises:
        UnknownAgent: there is neither; the message names the most similar ones.
    """
    try:
        session = find_agent(store, name)
    except UnknownAgent:
        for envelope in store.outbox_envelopes():
            address = Address.parse(envelope.target, envelope.namespace)
            if name == str(address):
                return address
        raise
    return Address.of(session)


def find_agent(store: JournalStore, name: str) -> Session:
    """Return the agent with an address.

    Raises:
        UnknownAgent: there is none; the message names the most similar ones.
    """
    try:
        return _session(store, name)
    except NotFound:
        names = [label(session) for session in store.sessions() if is_agent(session.name)]
        instead = nearest(name, names) or "there is none yet: podium run FILE.py:Class starts one"
        raise UnknownAgent(f"no agent {name!r} in this home; {instead}") from None


def split_moment(store: JournalStore, text: str) -> tuple[Session, int | None]:
    """Parse ``AGENT`` or ``AGENT@TURN``.

    A key may end in ``@`` and digits itself: an agent with the whole text as its address takes precedence.

    Raises:
        UnknownAgent: there is none.
        UnknownMoment: the turn is negative.
    """
    name, at, turn = text.rpartition("@")
    if at and _NUMBER.fullmatch(turn):
        try:
            return _session(store, text), None
        except NotFound:
            session, number = find_agent(store, name), int(turn)
        if number < 0:
            raise UnknownMoment(f"turns count from 0, the agent's creation; there is no turn {number} of {name}")
        return session, number
    return find_agent(store, text), None


def _session(store: SessionRecords, name: str) -> Session:
    try:
        address = Address.parse(name)
    except InvalidAddress:  # perhaps the inherited history of an imported agent, which has a session without an address
        return store.session(name)
    return store.session(address.name, address.tenant)


def is_agent(name: str) -> bool:
    """Whether a session's name is that of an agent, and not of the inherited history of an imported one."""
    try:
        Address.parse(name)
    except InvalidAddress:
        return False
    return True
