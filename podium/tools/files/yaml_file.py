"""YAML files with the places of their values: an error names file, line and column.

Only what JSON has: no tags, no anchors, no duplicate keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import yaml

from podium.errors import InvalidTool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.canonical import JsonObject

__all__ = ["YamlFile"]

_MAX_BYTES: Final = 1024 * 1024
_TYPES: Final = (str, int, float, bool, type(None))


class YamlFile:
    """A YAML file that has a mapping.

    Raises:
        InvalidTool: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marks: dict[tuple[str | int, ...], Any] = {}
        self._seen: set[int] = set()
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise InvalidTool(f"{path}: the file of a tool has at most {_MAX_BYTES} bytes")
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            root = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise InvalidTool(f"{_place(path, mark)}: {error.problem or error.context}") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InvalidTool(f"{path}: cannot be read: {error}") from error
        self._loader = loader
        if not isinstance(root, yaml.MappingNode):
            raise InvalidTool(
                f"{path}:1:1: the file of a tool is a mapping: name, description, parameters, implementation"
            )
        self.content = cast("JsonObject", self._value(root, ()))
        """What it has, as JSON."""

    def place(self, at: Sequence[str | int] = ()) -> str:
        """Return the place of a value, or of the innermost one around it that is there: ``FILE:LINE:COLUMN``."""
        where = tuple(at)
        while where and where not in self._marks:
            where = where[:-1]
        return _place(self.path, self._marks[where])

    def error(self, at: Sequence[str | int], reason: str) -> InvalidTool:
        """Return an error about a value."""
        name = ".".join(map(str, at))
        return InvalidTool(f"{self.place(at)}: {f'{name}: ' if name else ''}{reason}")

    def _value(self, node: Any, at: tuple[str | int, ...]) -> Any:
        self._marks[at] = node.start_mark
        if id(node) in self._seen:
            raise self.error(at, "an alias; write the value again")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, (*at, number)) for number, each in enumerate(node.value)]
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(at, f"cannot be read: {error}") from error
        if not isinstance(value, _TYPES):
            raise self.error(at, f"a {type(value).__name__}, which JSON cannot hold; write it in quotes")
        return value

    def _mapping(self, node: Any, at: tuple[str | int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag == "tag:yaml.org,2002:merge":
                raise InvalidTool(f"{_place(self.path, key_node.start_mark)}: a key is a text")
            if key in found:
                raise InvalidTool(f"{_place(self.path, key_node.start_mark)}: {key} is there twice")
            found[key] = self._value(value_node, (*at, key))
        return found


def _place(path: Path, mark: Any) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else str(path)
