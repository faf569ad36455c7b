"""`load_tools`: the tools of a directory."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import TYPE_CHECKING

from podium.errors import InvalidTool
from podium.tools.declaring import declared
from podium.tools.files.declarations import tool_of_file
from podium.tools.files.yaml_file import YamlFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from podium.tools.router import ToolRouter
    from podium.tools.tool_spec import Tool

__all__ = ["load_tools"]


def load_tools(directory: Path, router: ToolRouter, environment: Mapping[str, str] | None = None) -> list[Tool]:
    """Add the tools of a directory to a router: what ``@tool`` declares in ``*.py``, and ``*.yml`` or ``*.yaml``.

    Files whose names begin with ``_`` or ``.`` are left out; the others are read in the order of their names. A file of
    Python is imported, so it is code of the agent.

    Args:
        environment: the variables that ``${env.NAME}`` names, such as those of the process; none by default.

    Returns:
        the tools that were added.

    Raises:
        InvalidTool: a file has a mistake, or there is a tool of that name; the message has the places. Those before it
            were added.
    """
    if not directory.is_dir():
        raise InvalidTool(f"{directory}: there is no such directory of tools")
    added: list[Tool] = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith(("_", ".")) or not path.is_file():
            continue
        if path.suffix == ".py":
            added += [router.add(each) for each in _of_module(_imported(path))]
        elif path.suffix in {".yml", ".yaml"}:
            added.append(router.add(tool_of_file(YamlFile(path), environment or {})))
    return added


def _of_module(module: ModuleType) -> Iterator[Tool]:
    for value in list(vars(module).values()):
        found = declared(value)
        if found is not None and value.__module__ == module.__name__:
            yield found


def _imported(path: Path) -> ModuleType:
    name = f"_podium_tools_{path.stem}_{abs(hash(str(path.resolve())))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "it is a file of Python"
    assert spec.loader is not None, "it has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pydantic looks for what annotations name
    try:
        spec.loader.exec_module(module)
    except InvalidTool:
        del sys.modules[name]
        raise
    except SyntaxError as error:
        del sys.modules[name]
        raise InvalidTool(f"{error.filename or path}:{error.lineno}:{error.offset}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = f":{frames[-1].lineno}" if frames else ""
        raise InvalidTool(f"{path}{line}: importing it raised {type(error).__name__}: {error}") from error
    return module
