"""Loading a user's agent class from its file, with errors that tell how to fix it.

Importing runs the user's code, so this happens only in a host or in the throw-away inspector
(:mod:`podium.agent.inspect`), never in a process that serves others.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from pydantic import ValidationError

from podium.address import Address
from podium.agent.agent_types import agent_type_of
from podium.agent.base import RESOURCE_ALIASES, BaseAgent, Isolation, sandbox_of
from podium.agent.handler_specs import handlers_of
from podium.agent.handlers import takes_dicts
from podium.agent.models.delta_state import DeltaState
from podium.agent.retry import Retry
from podium.errors import AgentClassNotFound, AgentFileBroken, InvalidAddress, NotAnAgent, SandboxRefused
from podium.history.retention import Retention
from podium.sandbox.policy import Policy
from podium.settings import NO_WORKSPACE_VARIABLE, WorkspaceReads
from podium.state import StateError, to_json

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["load_agent_class", "load_module"]

_HOOKS: Final = tuple(name for name in vars(BaseAgent) if name.startswith("on_"))


def load_module(path: Path) -> ModuleType:
    """Import a file as a module, with its directory on the module path.

    A file of a package, that is with an ``__init__.py`` beside it, is imported under its name in the package, so that
    its relative imports work; any other one under its own name.

    Raises:
        AgentFileBroken: it does not import; the message names the line, ``detail`` has the traceback.
        NotAnAgent: a class in it has two handlers of one name.
    """
    try:
        package = _import_package(path)
        if package is not None and path.name == "__init__.py":
            return package
        name = _name_of(path, package)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise AgentFileBroken(f"{path} cannot be imported as Python")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except (AgentFileBroken, NotAnAgent):
        raise
    except SyntaxError as error:
        where = f"{error.filename or path}, line {error.lineno}"
        raise AgentFileBroken(f"syntax error in {where}: {error.msg}", traceback.format_exc()) from error
    except (Exception, SystemExit) as error:
        message = f"importing {_place_of(error, path)} raised {type(error).__name__}: {error}"
        if "no known parent package" in str(error):
            message += f"; for relative imports {path.parent} needs an __init__.py"
        raise AgentFileBroken(message, traceback.format_exc()) from error
    return module


def _import_package(path: Path) -> ModuleType | None:
    """Import the package that a file belongs to, and put the package's parent directory on the module path.

    Returns:
        the package; ``None`` if the file belongs to none, or if another package with its name is imported already.

    Raises:
        Exception: any exception of the package's import.
    """
    names: list[str] = []
    root = path.parent
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        names.insert(0, root.name)
        root = root.parent
    if not names:
        _search(path.parent, first=True)
        return None
    _search(root, first=True)
    _search(path.parent, first=False)  # last: a module of a package may have the name of a standard module
    package = importlib.import_module(".".join(names))
    return package if str(path.parent) in getattr(package, "__path__", ()) else None


def _search(directory: Path, *, first: bool) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(directory))


def _name_of(path: Path, package: ModuleType | None) -> str:
    if package is not None:
        return f"{package.__name__}.{path.stem}"
    return path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_podium_agent_{path.stem}"


def _place_of(error: BaseException, path: Path) -> str:
    """Return the innermost traceback line in the file, or else in a package that contains it."""
    frames = traceback.extract_tb(error.__traceback__)
    inits = {str(parent / "__init__.py") for parent in path.parents}
    found = next((frame for frame in reversed(frames) if frame.filename == str(path)), None)
    found = found or next((frame for frame in reversed(frames) if frame.filename in inits), None)
    return f"{found.filename}, line {found.lineno}" if found else str(path)


def load_agent_class(path: Path, class_name: str) -> type[BaseAgent]:
    """Import a file and return its agent class, after checking it.

    Raises:
        AgentFileBroken: the file does not import.
        AgentClassNotFound: it has no such class; the message lists its agent classes.
        NotAnAgent: the class is not a usable agent; the message tells what is missing.
    """
    with WorkspaceReads() as reads:
        found = _checked_class(path, class_name)
    if found.isolation == "shared" and reads.place is not None:
        raise NotAnAgent(
            f"class {class_name} in {path}: {reads.place} reads AGENT_WORKSPACE, which {NO_WORKSPACE_VARIABLE}"
        )
    return found


def _checked_class(path: Path, class_name: str) -> type[BaseAgent]:
    module = load_module(path)
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        agents = [name for name, value in vars(module).items() if _is_agent(value, module)]
        there = f"its agents are {', '.join(agents)}" if agents else "it has no agent at all"
        raise AgentClassNotFound(f"no class {class_name} in {path}; {there}")
    if not issubclass(found, BaseAgent):
        raise NotAnAgent(f"class {class_name} in {path} is not an agent: let it inherit from podium.agent.BaseAgent")
    check_agent_class(found, path)
    return found


def _check_needs(cls: type[BaseAgent], where: str) -> None:
    resources: object = cls.resources
    if not isinstance(resources, Mapping) or not all(
        isinstance(name, str) and isinstance(amount, int | float) and not isinstance(amount, bool) and amount > 0
        for name, amount in resources.items()
    ):
        raise NotAnAgent(
            f"{where}: resources are {resources!r}; give a dict of positive numbers, such as {{'num_cpus': 1}}"
        )
    for alias, name in RESOURCE_ALIASES.items():
        if alias in resources and name in resources:
            raise NotAnAgent(f"{where}: resources have {alias!r} and {name!r}, which are the same; remove one of them")
    labels: object = cls.labels
    if not isinstance(labels, Mapping) or not all(isinstance(part, str) for label in labels.items() for part in label):
        raise NotAnAgent(f"{where}: labels are {labels!r}; give a dict of strings, such as {{'zone': 'a'}}")


def _check_sandbox(cls: type[BaseAgent], where: str) -> None:
    if not isinstance(cls.sandbox, str | Policy | None):
        raise NotAnAgent(
            f"{where}: sandbox is {cls.sandbox!r}; write 'bubblewrap', or a Policy of podium.sandbox.policy"
        )
    try:
        declared = sandbox_of(cls)
    except SandboxRefused as error:
        raise NotAnAgent(f"{where}: {error}") from error
    if declared is not None and declared.writable:
        raise NotAnAgent(f"{where}: its sandbox has writable paths; a command writes to its workspace and to $TMPDIR")


def check_agent_class(cls: type[BaseAgent], path: Path) -> None:
    """Check an agent class before it runs.

    Raises:
        NotAnAgent: the first problem found.
    """
    where = f"class {cls.__name__} in {path}"
    handlers = handlers_of(cls)
    for name in handlers:
        if hasattr(BaseAgent, name):
            raise NotAnAgent(f"{where}: handler {name}: the name is one of podium's; give the handler another one")
    if not handlers and not takes_dicts(cls):
        raise NotAnAgent(f"{where} has no on_message: add 'async def on_message(self, ctx, message)'")
    for name in _HOOKS:
        _check_hook(cls, name, where)
    if cls.isolation not in get_args(Isolation):
        raise NotAnAgent(f"{where}: isolation is {cls.isolation!r}; write 'process' or 'shared'")
    state: object = cls.State
    if not inspect.isclass(state) or not issubclass(state, DeltaState):
        raise NotAnAgent(f"{where}: its State is not a DeltaState; write 'class State(DeltaState):'")
    for setting in ("idle_timeout_s", "turn_timeout_s", "shutdown_timeout_s", "max_attempts"):
        value = getattr(cls, setting)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise NotAnAgent(f"{where}: {setting} is {value!r}; give a positive number")
    if not isinstance(cls.retry, Retry | None):
        raise NotAnAgent(f"{where}: retry is {cls.retry!r}; give a Retry, such as Retry(attempts=5)")
    _check_needs(cls, where)
    _check_sandbox(cls, where)
    if cls.retention is not None and not isinstance(cls.retention, Retention):
        raise NotAnAgent(f"{where}: retention is {cls.retention!r}; give a Retention, such as Retention(turns=1000)")
    try:
        Address(agent_type_of(cls), "key")
    except InvalidAddress as error:
        raise NotAnAgent(f"{where}: {error}") from error
    try:
        to_json(cls.State())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        problem = "it has no default; give it one" if first["type"] == "missing" else first["msg"]
        raise NotAnAgent(f"{where}: its State cannot be made without arguments: field {field}: {problem}") from error
    except StateError as error:
        raise NotAnAgent(f"{where}: the defaults of its State cannot be stored: {error}") from error
    except (Exception, SystemExit) as error:
        raise NotAnAgent(f"{where}: making its State raised {type(error).__name__}: {error}") from error
    try:
        cls()
    except TypeError as error:
        raise NotAnAgent(f"{where} cannot be made without arguments: {error}") from error
    except (Exception, SystemExit) as error:
        raise NotAnAgent(f"{where}: its __init__ raised {type(error).__name__}: {error}") from error


def _check_hook(cls: type[BaseAgent], name: str, where: str) -> None:
    """Check that a hook can be called with its arguments and awaited.

    Raises:
        NotAnAgent: it cannot; the message has its position and its signature.
    """
    called = getattr(cls, name)  # of a static or class method: without the bound first argument
    parameters = list(inspect.signature(getattr(BaseAgent, name)).parameters)
    fix = f"write 'async def {name}({', '.join(parameters)})'"
    if not callable(called):
        raise NotAnAgent(f"{where}: {name} is {called!r}, which cannot be called; {fix}")
    code = getattr(called, "__code__", None)  # of a decorated hook: the decorator's, which is the one to fix
    place = f"{where}: {name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else f"{where}: {name}"
    if inspect.isasyncgenfunction(called):
        raise NotAnAgent(f"{place} has a yield, so it is a generator; send with ctx.send_message, and {fix}")
    if not inspect.iscoroutinefunction(called):
        raise NotAnAgent(f"{place} is not async; {fix}")
    bound = not inspect.isfunction(inspect.getattr_static(cls, name))
    try:
        # The callable itself: a decorator may pass other arguments to the function that it wraps.
        inspect.signature(called, follow_wrapped=False).bind(*parameters[1 if bound else 0 :])
    except TypeError as error:
        raise NotAnAgent(f"{place} takes other arguments than it is given ({error}); {fix}") from error


def _is_agent(value: object, module: ModuleType) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseAgent) and value.__module__ == module.__name__
