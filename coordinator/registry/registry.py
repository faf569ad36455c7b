"""The registry: the agent classes that a service knows by their types, each with its configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chronicle.canonical import Json, JsonObject

__all__ = ["RegisteredAgent", "Registry", "source_of"]


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """An agent class and the configuration of its agents."""

    agent_type: str
    file: str
    """Absolute path; with a bundle, the path in it."""
    class_name: str
    config: JsonObject = field(default_factory=dict)
    spec: str = ""
    """As the project file names it, such as ``agent.py:Greeter``; empty if none does."""
    accepts_client_state: bool = False
    """Whether messages have the state of an AG-UI front end; known to the process that read the project."""
    bundle: str = ""
    """The id of the bundle of a deploy that has the file; empty if it is on the nodes."""
    interface: JsonObject = field(default_factory=dict)
    """The handlers of the class with their schemas, as of `podium.agent.inspect.AgentInfo`; empty if it has none."""

    @property
    def place(self) -> str:
        """File and class, for messages to those who may know paths of this machine."""
        where = f" of the code bundle {self.bundle[:12]}" if self.bundle else ""
        return f"{self.file}:{self.class_name}{where}"

    @property
    def source(self) -> str:
        """The class as clients are told, without paths of this machine: its spec, else the names of file and class."""
        return self.spec if self.spec and not self.spec.startswith("/") else source_of(self.file, self.class_name)

    @property
    def described(self) -> dict[str, Json]:
        """The class for those who send messages: its type, and its handlers with their JSON Schemas."""
        interface = self.interface or {"handlers": {}, "on_message": True}
        return {
            "type": self.agent_type,
            "class": self.source,
            "on_message": interface["on_message"],
            "handlers": interface["handlers"],
        }

    def to_wire(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "file": self.file,
            "class": self.class_name,
            "agent_type": self.agent_type,
            "config": self.config,
            "spec": self.spec,
            **({"bundle": self.bundle} if self.bundle else {}),
            **({"interface": self.interface} if self.interface else {}),
        }

    @classmethod
    def from_wire(cls, value: object) -> RegisteredAgent:
        """Parse the JSON object that `to_wire` returns; those after ``agent_type`` may be absent.

        Raises:
            InvalidInput: a part is missing or of a wrong type.
        """
        given: Mapping[str, Any] = value if isinstance(value, dict) else {}
        file, class_name, agent_type = (given.get(name) for name in ("file", "class", "agent_type"))
        config, spec, bundle = given.get("config", {}), given.get("spec", ""), given.get("bundle", "")
        if not (isinstance(file, str) and isinstance(class_name, str) and isinstance(agent_type, str)):
            raise InvalidInput("an agent class must be an object with the strings file, class and agent_type")
        if not isinstance(config, dict):
            raise InvalidInput("'config' of an agent class must be an object")
        if not (isinstance(spec, str) and isinstance(bundle, str)):
            raise InvalidInput("'spec' and 'bundle' of an agent class must be strings")
        interface = _interface(given.get("interface", {}))
        return cls(agent_type, file, class_name, config, spec, bundle=bundle, interface=interface)


def _interface(given: object) -> JsonObject:
    """Return the interface of a class, after checking what its readers rely on."""
    match given:
        case {"handlers": {**handlers}, "on_message": bool()} if all(
            isinstance(each, dict) and isinstance(each.get("input"), dict) for each in handlers.values()
        ):
            return cast("JsonObject", given)
        case {} if not given:
            return {}
        case _:
            raise InvalidInput("'interface' of an agent class must be an object with handlers and on_message")


def source_of(file: str, class_name: str) -> str:
    """Return the name of a file, without its directory, and of a class in it."""
    return f"{PurePath(file).name}:{class_name}"


class Registry:
    """Agent classes by type; immutable.

    Args:
        agents: in any order.

    Raises:
        InvalidInput: two classes have one type.
    """

    def __init__(self, agents: Iterable[RegisteredAgent] = ()) -> None:
        by_type: dict[str, RegisteredAgent] = {}
        for agent in agents:
            other = by_type.setdefault(agent.agent_type, agent)
            if other is not agent:
                raise InvalidInput(
                    f"two agent classes have the type {agent.agent_type!r}: {other.place} and {agent.place}; give one "
                    "of them another agent_type"
                )
        self._by_type = dict(sorted(by_type.items()))

    @property
    def agents(self) -> tuple[RegisteredAgent, ...]:
        """The classes, by type."""
        return tuple(self._by_type.values())

    @property
    def types(self) -> tuple[str, ...]:
        """The types, sorted."""
        return tuple(self._by_type)

    def get(self, agent_type: str) -> RegisteredAgent | None:
        """Return the class of a type; ``None`` if there is none."""
        return self._by_type.get(agent_type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and self.agents == other.agents

    __hash__ = None  # type: ignore[assignment]  # configurations are dicts

    def to_wire(self) -> list[dict[str, Json]]:
        """Return it as a JSON array, for the operation ``register`` of the service."""
        return [agent.to_wire() for agent in self.agents]

    @classmethod
    def from_wire(cls, value: object) -> Registry:
        """Parse the JSON array that `to_wire` returns.

        Raises:
            InvalidInput: a part is missing or of a wrong type, or two classes have one type.
        """
        if not isinstance(value, list):
            raise InvalidInput("'agents' must be a list")
        return cls(RegisteredAgent.from_wire(each) for each in cast("list[object]", value))
