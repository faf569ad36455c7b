"""The agent types that a service knows, and the code of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput
from podium.errors import UnknownAgentType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.fleet.model import Code

__all__ = ["AgentTypes"]


class AgentTypes:
    """The code of each agent type: registered by a gateway, or named by a message that brought its code along."""

    def __init__(self) -> None:
        self._registered: dict[str, Code] = {}
        self._named: dict[str, Code] = {}

    def register(self, codes: Sequence[Code]) -> None:
        """Replace the registered codes.

        Raises:
            InvalidInput: two classes have one type; nothing was changed.
        """
        registered: dict[str, Code] = {}
        for code in codes:
            other = registered.setdefault(code.agent_type, code)
            if other != code:
                raise InvalidInput(
                    f"two agent classes have the type {code.agent_type!r}: {other.file}:{other.class_name} and "
                    f"{code.file}:{code.class_name}; give one of them another _entity_type"
                )
        self._registered = registered

    def note(self, code: Code) -> None:
        """Remember the code of a type that is not registered."""
        self._named[code.agent_type] = code

    def code_of(self, agent_type: str) -> Code:
        """Return the code of a type, the registered one first.

        Raises:
            UnknownAgentType: no code is known.
        """
        code = self._registered.get(agent_type) or self._named.get(agent_type)
        if code is None:
            raise UnknownAgentType(agent_type, tuple(sorted({*self._registered, *self._named})))
        return code

    @property
    def registered(self) -> list[Code]:
        """The registered codes, by type."""
        return [self._registered[agent_type] for agent_type in sorted(self._registered)]
