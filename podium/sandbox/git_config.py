"""The configuration of a git repository without what runs programs or reaches elsewhere. Pure.

A command may make a repository, whose configuration it writes, and who uses git there later is in no sandbox. Keys that
name a program (``core.hooksPath``, ``core.fsmonitor``, ``filter.*``, ``alias.*``, ``credential.helper``) or another
file (``include.path``) are many, and new versions of git add some. So a few are kept, and all others are dropped. The
text is written anew from what was read of it: what is read in another way than git does cannot get in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["harmless"]

_KEPT: Final = {
    "core": {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "symlinks", "autocrlf"},
    "remote": {"url", "fetch", "tagopt"},
    "branch": {"remote", "merge", "rebase"},
    "submodule": {"url", "active"},
    "user": {"name", "email"},
    "init": {"defaultbranch"},
    "pull": {"rebase"},
    "extensions": {"objectformat", "refstorage"},
}
"""Keys by their sections, in lower case."""
_HEADER: Final = re.compile(r'\s*\[([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\]')
_KEY: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=(.*))?")
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}


def harmless(text: str) -> str:
    """Return the part of a configuration that runs nothing and names no other file; empty if it cannot be read."""
    kept: list[str] = []
    last = ""
    for section, subsection, key, value in _entries(text):
        if key not in _KEPT.get(section, ()) or (key == "url" and _runs(value)):
            continue
        if not (value or "").isprintable() or not (subsection or "").isprintable():
            continue
        header = f"[{section}]" if subsection is None else f'[{section} "{_escaped(subsection)}"]'
        kept += [header] if header != last else []
        kept.append(f"\t{key}" if value is None else f"\t{key} = {_written(value)}")
        last = header
    return "".join(f"{line}\n" for line in kept)


def _entries(text: str) -> Iterator[tuple[str, str | None, str, str | None]]:
    """Yield section, subsection, key and value of each entry, up to the first line that is none."""
    section, subsection = "", None
    for rest in re.sub(r"\\\r?\n", "", text).split("\n"):
        entry = rest
        if header := _HEADER.match(rest):
            section, subsection = header[1].lower(), header[2]
            if subsection is not None:
                subsection = re.sub(r"\\(.)", r"\1", subsection)
            entry = rest[header.end() :]
        if not entry.strip() or entry.lstrip()[0] in "#;":
            continue
        found = _KEY.fullmatch(entry)
        if found is None or not section:
            return
        yield section, subsection, found[1].lower(), None if found[2] is None else _unquoted(found[2])


def _unquoted(value: str) -> str:
    """Return the value of a line: quotes join, a comment ends it, and space around it does not count."""
    read, spaces, is_quoted, characters = "", "", False, iter(value.strip())
    for each in characters:
        if each == "\\":
            escaped = next(characters, "")
            each = _ESCAPES.get(escaped, escaped)  # noqa: PLW2901
        elif each == '"':
            is_quoted = not is_quoted
            continue
        elif not is_quoted and each in "#;":
            break
        elif not is_quoted and each.isspace():
            spaces += each
            continue
        read, spaces = read + spaces + each, ""
    return read


def _written(value: str) -> str:
    escaped = _escaped(value)
    return f'"{escaped}"' if value != value.strip() or "#" in value or ";" in value else escaped


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _runs(url: str | None) -> bool:
    """Whether a URL names a program that git starts for it (``ext::``, ``helper::``), or an option."""
    return url is None or "::" in url or url.startswith("-")
