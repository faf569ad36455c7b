"""Checks of messages by the JSON Schemas of their agents' handlers, where no code of agents is.

The schemas are those that the inspector has read of the classes. What a schema cannot say, such as a validator, is
checked by the agent's host, which parks a message that does not fit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import jsonschema_rs
import structlog

from podium.agent.handlers import HANDLER, INPUT, check_way
from podium.agent.sources import marks_of
from podium.errors import InvalidMessage, UnknownHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import JsonObject
    from coordinator.registry.registry import RegisteredAgent

__all__ = ["MessageChecks"]

_LINEAR: Final = jsonschema_rs.RegexOptions()
"""Patterns are matched in linear time, as pydantic does: anybody may send the text."""

_log = structlog.stdlib.get_logger(__name__)


class MessageChecks:
    """Checks messages; the schemas of a class are compiled at its first message."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[JsonObject, Mapping[str, jsonschema_rs.Validator]]] = {}
        """By agent type: the interface of its class, and the validators of its handlers."""

    async def check(self, agent: RegisteredAgent, message: Mapping[str, Any], *, read: bool = False) -> None:
        """Check a message for an agent of a class.

        Args:
            read: it is for a read-only handler; else it is to be admitted.

        A message that does not fit passes if the class was edited since its schemas were read: its host knows better.

        Raises:
            InvalidMessage: it does not fit.
        """
        interface = agent.interface
        if not interface:
            return
        try:
            self._check(agent.agent_type, interface, message, read=read)
        except InvalidMessage:
            sources = cast("Mapping[str, Any]", interface.get("sources", {}))
            if await asyncio.to_thread(marks_of, sources) == sources:
                raise

    def _check(self, agent_type: str, interface: JsonObject, message: Mapping[str, Any], *, read: bool) -> None:
        known = self._compiled.get(agent_type)
        if known is None or known[0] is not interface:
            known = self._compiled[agent_type] = interface, _validators(agent_type, interface)
        if HANDLER not in message and interface["on_message"] and not read:
            return
        name = message.get(HANDLER)
        handlers = cast("Mapping[str, Any]", interface["handlers"])
        if not isinstance(name, str) or name not in handlers:
            what = f"there is no handler {name!r}" if HANDLER in message else "no handler is named"
            raise UnknownHandler(f"{what}; the handlers are {', '.join(handlers)}", f"message.{HANDLER}")
        if unknown := message.keys() - {HANDLER, INPUT}:
            raise InvalidMessage(f"a message for a handler has {HANDLER} and {INPUT} only", f"message.{min(unknown)}")
        check_way(name, message_is_read=read, handler_reads=bool(handlers[name].get("read_only")))
        validator = known[1].get(name)
        error = next(validator.iter_errors(message.get(INPUT, {})), None) if validator is not None else None
        if error is not None:
            raise InvalidMessage(_reason(error), ".".join(("message", INPUT, *_place(error))))


def _validators(agent_type: str, interface: JsonObject) -> dict[str, jsonschema_rs.Validator]:
    validators: dict[str, jsonschema_rs.Validator] = {}
    for name, described in cast("Mapping[str, Any]", interface["handlers"]).items():
        schema = described["input"]
        try:
            validators[name] = jsonschema_rs.Draft202012Validator(
                _with_tags(schema, schema), pattern_options=_LINEAR, offline=True
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            _log.warning("schema_not_usable", agent_type=agent_type, handler=name, error=str(error))
    return validators


def _with_tags(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a schema whose unions with a discriminator are checked by their tag, so that an error has its field."""
    if isinstance(schema, list):
        return [_with_tags(each, root) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _with_tags(value, root) for key, value in schema.items()}
    match schema:
        case {"oneOf": [*_], "discriminator": {"propertyName": str(tag), "mapping": {**mapping}}}:
            tags = {reference: _tag_of(root, str(reference), tag) for reference in mapping.values()}
            if all(tags.values()):
                del found["oneOf"], found["discriminator"]
                values = [value for several in tags.values() for value in several]
                chosen = [
                    {
                        "if": {"required": [tag], "properties": {tag: {"enum": several}}},
                        "then": {"$ref": reference},
                    }
                    for reference, several in tags.items()
                ]
                return {
                    **found,
                    "type": "object",
                    "required": [tag],
                    "properties": {tag: {"enum": values}},
                    "allOf": chosen,
                }
    return found


def _tag_of(root: Mapping[str, Any], reference: str, tag: str) -> list[Any]:
    """Return the values of a model's tag; none if its schema does not tell."""
    model = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    described = model.get("properties", {}).get(tag, {})
    return [described["const"]] if "const" in described else list(described.get("enum", ()))


def _place(error: jsonschema_rs.ValidationError) -> tuple[str, ...]:
    """Return the place of the field that is wrong: one that is missing, or that should not be there, has one, too."""
    path, kind = [str(part) for part in error.instance_path], error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        path.append(str(kind.property))
    elif isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        path.append(str(kind.unexpected[0]))
    return tuple(path)


def _reason(error: jsonschema_rs.ValidationError) -> str:
    text = error.message
    return text if len(text) <= 200 else f"{text[:200]}…"
