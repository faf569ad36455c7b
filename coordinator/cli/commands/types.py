"""``podium types``: the agent types of a project, and the typed messages that each takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import JsonOption, ProjectOption, command
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coordinator.registry.registry import RegisteredAgent

__all__ = ["types"]


@command
def types(*, project: ProjectOption = None, json: JsonOption = False) -> None:
    """List the agent types of the project, with the handlers of each; --json has their JSON Schemas.

    The classes are read as they are now, each in a process of its own; no home and no service is needed.
    """
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415  slow to import, as are the others
    from coordinator.registry.project import load_project  # noqa: PLC0415
    from coordinator.registry.resolve import resolve  # noqa: PLC0415

    loaded = load_project(project)
    with Progress() as progress:
        progress.show("reading the agents' code")
        agents = resolve(loaded).agents
    if json:
        write_json({"types": [_described(agent) for agent in agents]})
    elif not agents:
        say(f"{loaded.file} names no agents")
    else:
        table(("TYPE", "CLASS", "MESSAGE", "RESULT"), [row for agent in agents for row in _rows(agent)])


def _described(agent: RegisteredAgent) -> dict[str, Any]:
    interface = agent.interface or {"handlers": {}, "on_message": True}
    return {
        "type": agent.agent_type,
        "class": agent.source,
        "on_message": interface["on_message"],
        "handlers": interface["handlers"],
    }


def _rows(agent: RegisteredAgent) -> Iterator[tuple[str, str, str, str]]:
    described = _described(agent)
    if described["on_message"]:
        yield agent.agent_type, agent.source, "any JSON object", ""
    for name, schemas in cast("Mapping[str, Any]", described["handlers"]).items():
        result = schemas["result"]
        yield agent.agent_type, agent.source, f"{name}: {_name(schemas['input'])}", _name(result) if result else ""


def _name(schema: Mapping[str, Any]) -> str:
    """Return the name of a schema's model; of a union those of its models, else the kind of its values."""
    if "oneOf" in schema:
        return " | ".join(_name(each) for each in schema["oneOf"])
    if "items" in schema:
        return f"list of {_name(schema['items'])}"
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    return str(schema.get("title") or reference or schema.get("type") or "any JSON")
