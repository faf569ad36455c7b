"""``podium types``: the agent types of a project or of a server, and the typed messages that each takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import ApiKeyOption, JsonOption, ProjectOption, UrlOption, command
from coordinator.cli.target import Target
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["types"]


@command
def types(
    *, project: ProjectOption = None, url: UrlOption = "", key: ApiKeyOption = "", json: JsonOption = False
) -> None:
    """List the agent types of the project, with the handlers of each; --json has their JSON Schemas.

    The classes are read as they are now, each in a process of its own; no home and no service is needed. With --url
    those that the server knows are listed.
    """
    if url and project is None:
        where, found = url, _of_server(Target(Path(), url, key, json))
    else:
        where, found = _of_project(project)
    if json:
        write_json({"types": list(found)})
    elif not found:
        say(f"{where} names no agents")
    else:
        table(("TYPE", "CLASS", "MESSAGE", "RESULT"), [row for agent in found for row in _rows(agent)])


def _of_server(target: Target) -> Sequence[Mapping[str, Any]]:
    found = target.ask("asking for the types", lambda podium: podium.types())
    return [each.as_json() for each in found]


def _of_project(project: Path | None) -> tuple[str, Sequence[Mapping[str, Any]]]:
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415  slow to import, as are the others
    from coordinator.registry.project import load_project  # noqa: PLC0415
    from coordinator.registry.resolve import resolve  # noqa: PLC0415

    loaded = load_project(project)
    with Progress() as progress:
        progress.show("reading the agents' code")
        return str(loaded.file), [agent.described for agent in resolve(loaded).agents]


def _rows(agent: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    if agent["on_message"]:
        yield agent["type"], agent["class"], "any JSON object", ""
    for name, schemas in agent["handlers"].items():
        result = schemas["result"]
        yield agent["type"], agent["class"], f"{name}: {_name(schemas['input'])}", _name(result) if result else ""


def _name(schema: Mapping[str, Any]) -> str:
    """Return the name of a schema's model; of a union those of its models, else the kind of its values."""
    if "oneOf" in schema:
        return " | ".join(_name(each) for each in schema["oneOf"])
    if "items" in schema:
        return f"list of {_name(schema['items'])}"
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    return str(schema.get("title") or reference or schema.get("type") or "any JSON")
