"""Templates of HTTP requests: no argument becomes a URL's host or path separator, a header's line or JSON structure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, unquote

from podium.tools.files.template import Argument, TemplateError, arguments_in, filled, text_of
from podium.tools.tool_spec import BadArguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.canonical import Json
    from podium.tools.files.template import Piece

__all__ = ["Body", "HeaderTemplate", "UrlTemplate", "body_template"]

_ORIGIN: Final = re.compile(r"https?://[^/?#\s\\]+", re.ASCII)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING: Final = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"""Headers that say where a request goes, and where it ends."""
_MARK: Final = re.compile("\ue000([0-9]+)\ue001")
"""An argument in a JSON body while it is read."""


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """A URL whose arguments are parts of one segment of its path, or of its query.

    Raises:
        TemplateError: an argument stands somewhere else, or the URL is none.
    """

    pieces: Sequence[Piece]

    def __post_init__(self) -> None:
        first = self.pieces[0] if self.pieces else ""
        origin = _ORIGIN.match(first) if isinstance(first, str) else None
        if origin is None:
            raise TemplateError("a URL begins with http:// or https:// and a host", 0)
        rest = str(first)[origin.end() :]
        if rest[:1] not in {"", "/", "?", "#"}:
            raise TemplateError("behind the host of a URL stands / or ?", origin.end())
        if len(self.pieces) > 1 and not rest:
            raise TemplateError("an argument cannot be in the host of a URL; write a / before it", self._first.offset)
        before = ""
        for piece in self.pieces:
            if isinstance(piece, Argument) and "#" in before:
                raise TemplateError("an argument cannot be in the fragment of a URL, which is not sent", piece.offset)
            before += piece if isinstance(piece, str) else "x"

    @property
    def _first(self) -> Argument:
        return arguments_in(self.pieces)[0]

    def filled(self, values: Mapping[str, Json]) -> str:
        """Return the URL.

        Raises:
            BadArguments: a value would lead elsewhere in the path; also if a server decodes it before it looks.
        """
        quoted = {each.name: _quoted(each.name, values) for each in arguments_in(self.pieces)}
        url = filled(self.pieces, quoted)
        path = url.partition("#")[0].partition("?")[0]
        start = url.index("/", url.index("://") + 3) if "/" in path[path.index("://") + 3 :] else len(path)
        segments = path[start:].split("/")[1:]
        written = (
            filled(self.pieces, dict.fromkeys(quoted, "x")).partition("?")[0].partition("#")[0][start:].split("/")[1:]
        )
        for segment, literal in zip(segments, written, strict=True):
            decoded = unquote(segment)
            if segment != literal and (not segment or not {".", ".."}.isdisjoint(re.split(r"[/\\]", decoded))):
                raise BadArguments((f"{decoded!r} cannot be a part of the path of {url.partition('?')[0]}",))
        return url


@dataclass(frozen=True, slots=True)
class HeaderTemplate:
    """The value of a header.

    Raises:
        TemplateError: an argument cannot be in this header.
    """

    name: str
    pieces: Sequence[Piece]

    def __post_init__(self) -> None:
        named = arguments_in(self.pieces)
        if named and self.name.lower() in _FRAMING:
            raise TemplateError(f"an argument cannot be in the header {self.name}", named[0].offset)

    def filled(self, values: Mapping[str, Json]) -> bytes:
        """Return the value, as UTF-8.

        Raises:
            BadArguments: it would be more than one line, or lose white space at its ends.
        """
        texts = {each.name: text_of(values.get(each.name)) for each in arguments_in(self.pieces)}
        found = filled(self.pieces, texts)
        if _CONTROLS.search(found):
            raise BadArguments((f"the header {self.name} cannot have control characters, such as the end of a line",))
        if texts and found != found.strip():
            raise BadArguments((f"the header {self.name} cannot begin or end with white space",))
        return _utf8(found, self.name)


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: JSON, a form or plain text, by its media type."""

    media_type: str
    pieces: Sequence[Piece]
    document: Any = None
    """Of JSON: the document, with marks in the places of arguments."""

    def filled(self, values: Mapping[str, Json]) -> bytes:
        """Return the body.

        Raises:
            BadArguments: a value is no text that can be sent.
        """
        named = arguments_in(self.pieces)
        if self.media_type == "application/json":
            inserted = [values.get(each.name) for each in named]
            return _utf8(json.dumps(_inserted(self.document, inserted), ensure_ascii=False), "body")
        if self.media_type == "application/x-www-form-urlencoded":
            return filled(self.pieces, {each.name: _quoted(each.name, values, plus=True) for each in named}).encode()
        return _utf8(filled(self.pieces, {each.name: text_of(values.get(each.name)) for each in named}), "body")


def body_template(media_type: str, pieces: Sequence[Piece]) -> Body:
    """Return the template of a body.

    Args:
        media_type: of the body, in lower case and without parameters.

    Raises:
        TemplateError: it is no JSON, or its arguments would have no meaning of their own in a body of that type.
    """
    named = arguments_in(pieces)
    if media_type != "application/json":
        if named and media_type not in {"application/x-www-form-urlencoded", "text/plain"}:
            raise TemplateError(
                f"a body of {media_type} has no arguments: JSON, a form and plain text have", named[0].offset
            )
        return Body(media_type, pieces)
    text, number, in_string, begins = "", 0, False, []
    for piece in pieces:
        if isinstance(piece, Argument):
            text += f"\ue000{number}\ue001" if in_string else f'"\ue000{number}\ue001"'
            begins.append(in_string)
            number += 1
            continue
        if "\ue000" in piece or "\ue001" in piece:
            raise TemplateError("a body has no characters U+E000 and U+E001", 0)
        in_string = _ends_in_string(piece, in_string)
        text += piece
    try:
        document = _marked(json.loads(text), begins)
    except json.JSONDecodeError as error:
        offset = error.pos if not named or error.pos < named[0].offset else named[-1].offset
        raise TemplateError(f"the body is no JSON: {error.msg}", offset) from error
    return Body(media_type, pieces, document)


class _Value:
    """The place of an argument that is a whole value of a JSON document."""

    def __init__(self, number: int) -> None:
        self.number = number


def _ends_in_string(text: str, in_string: bool) -> bool:
    """Return whether a piece of JSON ends inside of a string."""
    escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif in_string and char == "\\":
            escaped = True
        elif char == '"':
            in_string = not in_string
    if escaped:
        raise TemplateError("a backslash stands before an argument; leave it out", 0)
    return in_string


def _marked(document: Any, begins: Sequence[bool]) -> Any:
    """Return a document with the arguments that are whole values in place of their marks."""
    if isinstance(document, dict):
        if any(_MARK.search(key) for key in document):
            raise TemplateError("an argument cannot be in a key of the body", 0)
        return {key: _marked(value, begins) for key, value in document.items()}
    if isinstance(document, list):
        return [_marked(each, begins) for each in document]
    if isinstance(document, str) and (found := _MARK.fullmatch(document)) and not begins[int(found[1])]:
        return _Value(int(found[1]))
    return document


def _inserted(document: Any, values: Sequence[Json]) -> Any:
    if isinstance(document, dict):
        return {key: _inserted(value, values) for key, value in document.items()}
    if isinstance(document, list):
        return [_inserted(each, values) for each in document]
    if isinstance(document, _Value):
        return values[document.number]
    if isinstance(document, str):
        return _MARK.sub(lambda found: text_of(values[int(found[1])]), document)
    return document


def _quoted(name: str, values: Mapping[str, Json], *, plus: bool = False) -> str:
    text = text_of(values.get(name))
    _utf8(text, name)
    return quote_plus(text) if plus else quote(text, safe="")


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadArguments((f"{name}: it has half of a surrogate pair, which is no text",)) from None
