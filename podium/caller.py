"""`Caller`: who asks for a turn. It travels with the message, beside its body, from the edge that authenticated it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from podium.address import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chronicle.canonical import Json, JsonObject

__all__ = ["CUT", "LONGEST_CHAIN", "NOBODY", "Caller"]

LONGEST_CHAIN: Final = 32
"""Agents in a chain: messages may go from agent to agent for ever."""
CUT: Final = "…"
"""In a chain in place of the agents in its middle. No agent has such an address."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked for a turn, as the edge of the home has authenticated them when the message was admitted.

    Nothing in a message can change it. One without scopes has shown no key: such are hooks that handle no message, the
    messages that follow from them, and messages of versions that did not record callers.
    """

    key_id: str | None = None
    """The id of the key, or of the token; ``None`` for who needs none, such as local commands."""
    scopes: frozenset[str] = frozenset()
    """What it permitted, with the scopes that others imply."""
    claims: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of a token: what its maker says of who has it, such as ``sub`` and ``name``."""
    agents: tuple[str, ...] = ()
    """The addresses of the agents through which it came: who was asked by the caller first, who sent the message last.
    Each is there once, at its last place; of more than 32 ``…`` stands for those in the middle."""
    tenant: str = DEFAULT_TENANT

    @classmethod
    def from_json(cls, value: Json) -> Caller | None:
        """Return the caller of a JSON value; ``None`` if the value has another form."""
        match value:
            case {"key_id": str() | None as key_id, "scopes": [*scopes], **others} if _are_texts(scopes):
                claims, agents = others.get("claims", {}), others.get("agents", [])
                if isinstance(claims, dict) and isinstance(agents, list) and _are_texts(agents):
                    return cls(key_id, frozenset(map(str, scopes)), claims, tuple(str(each) for each in agents))
        return None

    def to_json(self) -> JsonObject:
        """Return it as JSON, without the tenant, which is that of the agent."""
        found: JsonObject = {"key_id": self.key_id, "scopes": [*sorted(self.scopes)]}
        if self.claims:
            found["claims"] = dict(self.claims)
        if self.agents:
            found["agents"] = list(self.agents)
        return found

    def through(self, agent: str) -> Caller:
        """Return the caller of what an agent sends while it handles a message of this one."""
        agents = (*(each for each in self.agents if each != agent), agent)
        if len(agents) > LONGEST_CHAIN:
            half = LONGEST_CHAIN // 2
            first, last = agents[:half], agents[1 - half :]
            agents = (*(each for each in first if each != CUT), CUT, *(each for each in last if each != CUT))
        return replace(self, agents=agents)


NOBODY: Final = Caller()
"""Who shows no key."""


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(each, str) for each in values)
