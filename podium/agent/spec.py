"""Specs of agent classes, as on the command line: ``FILE.py:Class``, or ``package.module:Class``.

No user code is imported here.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from chronicle.errors import InvalidInput
from podium.errors import AgentFileNotFound

__all__ = ["parse_spec"]


def parse_spec(spec: str, directory: Path | None = None) -> tuple[Path, str]:
    """Split ``FILE.py:Class`` or ``package.module:Class`` into an absolute path and a class name.

    A module is searched in the directory, then on Python's module path. A package stands for its ``__init__.py``.

    Args:
        directory: what paths are relative to; the working directory by default.

    Raises:
        InvalidInput: it has neither form.
        AgentFileNotFound: there is no such file or module.
    """
    named, colon, class_name = spec.rpartition(":")
    if not colon or not named or not class_name.isidentifier():
        raise InvalidInput(
            f"{spec!r} does not name an agent: write FILE.py:Class, such as examples/hello.py:HelloAgent, or "
            "package.module:Class"
        )
    place = (directory or Path.cwd()).absolute()
    path = place / Path(named).expanduser()
    if path.is_file():
        if path.suffix != ".py":
            raise AgentFileNotFound(f"{named} is not a Python file; its name must end in .py")
        return path, class_name
    if not named.endswith(".py") and all(part.isidentifier() for part in named.split(".")):
        return _file_of(named, place), class_name
    raise AgentFileNotFound(
        f"no file {path if directory else named}; give the path of the Python file that has class {class_name}"
    )


def _file_of(module: str, directory: Path) -> Path:
    """Return the file of a module, without importing its packages.

    Raises:
        AgentFileNotFound: there is none, or it is not a Python source file.
    """
    top, *rest = module.split(".")
    found = PathFinder.find_spec(top, [str(directory)]) or find_spec(top)
    for part in rest:
        found = PathFinder.find_spec(part, found.submodule_search_locations or []) if found is not None else None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise AgentFileNotFound(
            f"no module {module} in {directory} or on Python's module path; give the path of its file, such as "
            f"{module.replace('.', '/')}.py"
        )
    return Path(found.origin).absolute()
