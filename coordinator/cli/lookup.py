"""The agent that an argument names, and the error for one that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.errors import NotFound
from coordinator.operations.suggestions import nearest
from podium.address import Address, label
from podium.errors import InvalidAddress, UnknownAgent

if TYPE_CHECKING:
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import Session

__all__ = ["find_agent", "unknown_agent"]

_NO_AGENT: Final = "there is none yet: podium run FILE.py:Class starts one"


def find_agent(store: SessionRecords, name: str) -> Session:
    """Return the agent with an address, or the inherited history of an imported one.

    Raises:
        UnknownAgent: there is none; the message names the most similar ones.
    """
    try:
        address = Address.parse(name)
    except InvalidAddress:  # perhaps an inherited history, which has a session without an address
        key: tuple[str, ...] = (name,)
    else:
        key = (address.name, address.tenant)
    try:
        return store.session(*key)
    except NotFound:
        from podium.agent_record import list_agents  # noqa: PLC0415  slow to import, and needed for an error only

        names = [label(session) for session in list_agents(store)]
        raise unknown_agent(f"no agent {name} in this home", name, names) from None


def unknown_agent(problem: str, name: str, names: list[str]) -> UnknownAgent:
    """Return the error for an agent that does not exist.

    Args:
        names: of the agents that do.
    """
    return UnknownAgent(problem if name in names else f"{problem}; {nearest(name, names) or _NO_AGENT}")
