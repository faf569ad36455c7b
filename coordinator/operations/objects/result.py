"""How the results of operations are declared: data classes whose fields are the keys of a JSON object.

Nothing is imported for them that a command would wait for; pydantic, which checks and writes them for HTTP, reads the
same declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["MAY_BE_ABSENT", "Result", "key", "one_of", "read_result"]

_R = TypeVar("_R", bound="Result")


class Result:
    """A result of an operation. The string below a field describes it, also in the OpenAPI document."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "use_attribute_docstrings": True,
        "defer_build": True,  # until the first one is read or written: a process serves few kinds soon
        "json_schema_serialization_defaults_required": True,
    }

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that HTTP answers with."""
        found: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]  # its subclasses are data classes
            value = getattr(self, each.name)
            if not ("exclude_if" in each.metadata and each.metadata["exclude_if"](value)):
                found[each.metadata.get("alias", each.name)] = _json_of(value)
        return found


def _is_absent(value: object) -> bool:
    return value is None


MAY_BE_ABSENT: Final[Mapping[str, Any]] = {"exclude_if": _is_absent}
"""Metadata of a field whose key is left out instead of being null."""


def key(name: str) -> Mapping[str, Any]:
    """Return the metadata of a field whose key has another name, such as one that is a keyword."""
    return {"alias": name}


def one_of(*texts: str, null: bool = False) -> Mapping[str, Any]:
    """Return the metadata of a field that is one of some texts. A reader accepts others, of newer versions."""
    schema = {"type": "string", "enum": texts}
    return {"json_schema_extra": {"anyOf": [schema, {"type": "null"}]} if null else schema}


def read_result(kind: type[_R], value: object) -> _R:
    """Return the result whose JSON object is given. Keys that this release does not know are ignored.

    Raises:
        pydantic.ValidationError: a key is missing, or has another type.
    """
    return cast("_R", _adapter(cast("Any", kind)).validate_python(value))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415  slow to import, and results of a local home are not read

    return TypeAdapter(kind)


def _json_of(value: Any) -> Any:
    if isinstance(value, Result):
        return value.as_json()
    return [_json_of(each) for each in value] if isinstance(value, list | tuple) else value
