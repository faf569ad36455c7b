"""The page of recorded events, from `podium.events`: each type, its keys and their meaning."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium import events
from tools.reference.markdown import code, docstring_of, docstrings, document, from_docstring, table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["page"]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A ``TypedDict``: its name, docstring, bases, and the name, type and docstring of each key."""

    name: str
    text: str
    bases: tuple[str, ...]
    keys: tuple[tuple[str, str, str], ...]

    @property
    def event_type(self) -> str:
        """The event type that the docstring begins with; empty for a part of a payload."""
        name = self.text.split("`")[1] if self.text.startswith("`") else ""
        return name if name in events.EVENT_TYPES else ""


def page() -> str:
    """Return the page."""
    shapes = list(_shapes(ast.parse(inspect.getsource(events)).body))
    return document(
        "Event reference",
        "What `podium log --json`, `GET …/events` and archives show of an agent's record: each event has a `type`, and "
        "a `payload` with these keys. A `?` marks a key that may be absent. A reader ignores keys that it does not "
        "know. A key keeps its meaning for ever.",
        *(part for shape in shapes if shape.event_type for part in _event(shape)),
        "## Parts of payloads",
        *(part for shape in shapes if not shape.event_type for part in _part(shape)),
    )


def _event(shape: _Shape) -> Iterator[str]:
    yield f"## {shape.event_type}"
    text = shape.text.partition(": ")[2]
    yield text[:1].upper() + text[1:]
    yield from _keys(shape)


def _part(shape: _Shape) -> Iterator[str]:
    yield f"### {shape.name}"
    yield shape.text
    yield from _keys(shape)


def _keys(shape: _Shape) -> Iterator[str]:
    for base in shape.bases:
        yield f"The keys of `{base}`."
    yield table(("key", "type", "meaning"), ((code(name), code(kind), meaning) for name, kind, meaning in shape.keys))


def _shapes(body: list[ast.stmt]) -> Iterator[_Shape]:
    """Yield the classes of a module, also one that is written as a call because a key of it is a keyword."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.ClassDef(name=name, bases=bases, body=inner):
                inherited = [base.id for base in bases if isinstance(base, ast.Name) and base.id != "TypedDict"]
                text = from_docstring(ast.get_docstring(statement))
                yield _Shape(name, text, tuple(inherited), tuple(_keys_of_class(inner)))
            case ast.Assign(
                value=ast.Call(func=ast.Name("TypedDict"), args=[ast.Constant(str(name)), ast.Dict() as keys])
            ):
                rows = [
                    (ast.literal_eval(key), _type(kind), "")
                    for key, kind in zip(keys.keys, keys.values, strict=True)
                    if key
                ]
                yield _Shape(name, docstring_of(following), (), tuple(rows))


def _keys_of_class(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    texts = docstrings(body)
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, _type(statement.annotation), texts[statement.target.id]


def _type(annotation: ast.expr) -> str:
    """Return a type as it is written, with a question mark if the key may be absent."""
    text = ast.unparse(annotation)
    return f"{text[12:-1]}?" if text.startswith("NotRequired[") else text
