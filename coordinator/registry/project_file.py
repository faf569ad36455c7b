"""Which file is that of a project, and the home and the URLs that it names: what commands read of it at each start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from chronicle.errors import InvalidInput, NotFound
from chronicle.journal.places import without_password
from coordinator.environment import DEFAULT_HOME

__all__ = [
    "PROJECT_FILE",
    "PYPROJECT",
    "URLS",
    "check_url",
    "find_project",
    "home_of_project",
    "read_toml",
    "url_of_project",
]

PROJECT_FILE: Final = "podium.toml"
PYPROJECT: Final = "pyproject.toml"
URLS: Final = ("blobs", "journal")
"""The keys of what a new home of the project keeps elsewhere."""


def find_project(directory: Path | None = None) -> Path | None:
    """Return the project file of a directory or of its nearest ancestor that has one.

    Args:
        directory: the working directory by default.

    Raises:
        InvalidInput: a directory has both kinds of file.
    """
    start = (directory or Path.cwd()).absolute()
    for place in (start, *start.parents):
        own, shared = place / PROJECT_FILE, place / PYPROJECT
        in_shared = _has_table(shared)
        if own.is_file() and in_shared:
            raise InvalidInput(f"{place} has {PROJECT_FILE} and a [tool.podium] in {PYPROJECT}; remove one of them")
        if own.is_file():
            return own
        if in_shared:
            return shared
    return None


def home_of_project() -> Path | None:
    """Return the home that the project of the working directory names; ``None`` outside of a project.

    It reads nothing else of the file.

    Raises:
        InvalidInput: the file cannot be read, or two files are there.
    """
    file = find_project()
    if file is None:
        return None
    settings = _table_of(file).get("settings", {})
    name = settings.get("home", DEFAULT_HOME) if isinstance(settings, dict) else DEFAULT_HOME
    home = Path(name if isinstance(name, str) else DEFAULT_HOME).expanduser()
    return home if file.parent == Path.cwd() else file.parent / home


def url_of_project(key: str, file: Path | None = None) -> str:
    """Return where a new home of a project keeps its blobs or its journal; empty outside of a project, and by default.

    Args:
        key: one of `URLS`.
        file: the project file; by default the one that `find_project` finds.

    Raises:
        InvalidInput: the file cannot be read, or has a value that cannot be used.
    """
    found = file or find_project()
    value = _table_of(found).get(key, "") if found is not None else ""
    problem = check_url(key, value)
    if problem is not None:
        raise InvalidInput(f"{found}: {key}: {problem}")
    return str(value)


def check_url(key: str, value: object) -> str | None:
    """Return what is wrong with the value of one of `URLS`, and how to mend it; ``None`` if it can be used."""
    if not isinstance(value, str):
        return "write a URL, in quotes"
    if without_password(value) != value:
        return (
            f"it has a password, and this file is read by others: give the URL with it in PODIUM_{key.upper()}_URL, or "
            "the password where the client of the server finds it (PGPASSFILE)"
        )
    return None


def _table_of(file: Path) -> dict[str, Any]:
    """Return the content of a project file."""
    content = read_toml(file)
    table = content.get("tool", {}).get("podium", {}) if file.name == PYPROJECT else content
    return table if isinstance(table, dict) else {}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a project file.

    Raises:
        NotFound: there is none.
        InvalidInput: it is not TOML.
    """
    import tomllib  # noqa: PLC0415  few directories have a project

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"no file {path}; podium new NAME makes a project, --project FILE names one") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text: byte {error.start} is not valid; save it as UTF-8") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        hint = "; the configuration of agents belongs into [config.TYPE]" if "'agents'" in str(error) else ""
        raise InvalidInput(f"{path} is not valid TOML: {error}{hint}") from None


def _has_table(pyproject: Path) -> bool:
    """Whether a ``pyproject.toml`` has a table ``[tool.podium]``, or seems to and is not valid."""
    try:
        text = pyproject.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if "podium" not in text:
        return False
    import tomllib  # noqa: PLC0415

    try:
        return isinstance(tomllib.loads(text).get("tool", {}).get("podium"), dict)
    except tomllib.TOMLDecodeError:
        return "[tool.podium" in text
