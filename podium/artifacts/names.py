"""Names and media types of artifacts. Pure.

Clients use names as file names and media types as HTTP headers, so neither may contain characters that are special
there.
"""

from __future__ import annotations

import mimetypes
import re
from functools import cache
from typing import Final

from chronicle.errors import InvalidInput

__all__ = ["MAX_NAME_BYTES", "check_media_type", "check_name", "media_type_of"]

MAX_NAME_BYTES: Final = 255
"""As UTF-8: the limit of file systems for a file name."""
_MAX_MEDIA_TYPE: Final = 255
"""Characters."""
_MEDIA_TYPE: Final = re.compile(
    r"""[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}  # RFC 6838, 4.2
        (?:[ ]?;[ ]?[A-Za-z0-9!#$%&'*+.^_`|~-]+=(?:[A-Za-z0-9!#$%&'*+.^_`|~-]+|"[ !#-\[\]-~]*"))*""",
    re.VERBOSE,
)
_ADDED: Final = {
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
"""Missing in the standard library of some Python versions."""
_COMPRESSED: Final = {
    "br": "application/octet-stream",
    "bzip2": "application/x-bzip2",
    "compress": "application/x-compress",
    "gzip": "application/gzip",
    "xz": "application/x-xz",
}
_UNKNOWN: Final = "application/octet-stream"


def check_name(name: str) -> None:
    """Check the name of an artifact.

    Raises:
        InvalidInput: it cannot be used; the message tells why.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"an artifact's name is a string, not {type(name).__name__}")
    problem = None
    if not name:
        problem = "it is empty; take one such as report.pdf"
    elif "/" in name or name in {".", ".."}:
        problem = "it is a path; take the last part of it"
    elif not name.isprintable() or name != name.strip():
        problem = "it has control characters, or white space at an end"
    elif len(name.encode()) > MAX_NAME_BYTES:
        problem = f"it is longer than {MAX_NAME_BYTES} bytes"
    if problem is not None:
        shown = repr(name) if len(name) <= 60 else f"{name[:57]!r}…"
        raise InvalidInput(f"an artifact cannot be called {shown}: {problem}")


def check_media_type(media_type: str) -> None:
    """Check a media type.

    Raises:
        InvalidInput: it is malformed.
    """
    if not isinstance(media_type, str):
        raise InvalidInput(f"a media type is a string, not {type(media_type).__name__}")
    if len(media_type) > _MAX_MEDIA_TYPE or not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidInput(f"{media_type!r} is not a media type, such as image/png or text/plain; charset=utf-8")


def media_type_of(name: str, *, text: bool) -> str:
    """Return the media type derived from a name.

    Args:
        text: the content is text, encoded as UTF-8.
    """
    # With a directory in front, because guess_type accepts URLs: a name may begin with "data:".
    found, compression = _types().guess_type(f"./{name}")
    if compression is not None:
        found = _COMPRESSED.get(compression, _UNKNOWN)
    if not text:
        return found or _UNKNOWN
    found = found or "text/plain"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


@cache
def _types() -> mimetypes.MimeTypes:
    """Return the standard library's own tables, independent of the machine's configuration."""
    types = mimetypes.MimeTypes()
    for suffix, media_type in _ADDED.items():
        types.add_type(media_type, suffix)
    return types
