"""The project file: ``podium.toml``, or the table ``[tool.podium]`` of a ``pyproject.toml``.

::

    agents = ["pkg.mod:Class", "file.py:Class"]     # relative to the directory of the file; [] if all are deployed
    env_file = ".env"                               # environment of the agents
    journal = "postgresql://podium@db/podium"       # where a new home keeps its journal, and with it
    blobs = "s3://bucket/prefix"                    # its blobs; without them, in its directory
    requirements = ["httpx>=0.28"]                  # what nodes have to have installed to run it when it is deployed

    [config.hello]                                  # `AgentContext.config` of the agents of type hello
    model = "small"

    [settings]                                      # `coordinator.settings`, without the prefix of the variables
    warm_hosts = 2

    [tenants.acme.quota]                            # what the tenant acme may have
    agents = 100

    [models."code.fast"]                            # a model; see `coordinator.models.profiles`
    provider = "openai"

It is searched from the working directory upwards. Everything in it is checked when it is read, and an error names the
file, the key and how to mend it. No code of agents is imported; `coordinator.registry.resolve` does that in processes
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.errors import InvalidInput, NotFound
from coordinator.environment import DEFAULT_HOME
from coordinator.models.profiles import ModelsConfig, check_models
from coordinator.registry.env_file import read_env_file
from coordinator.registry.project_file import PROJECT_FILE, PYPROJECT, URLS, check_url, find_project, read_toml
from coordinator.registry.tenants import check_tenants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import JsonObject

__all__ = ["Project", "load_project"]

_KEYS: Final = ("agents", "blobs", "config", "env_file", "journal", "models", "requirements", "settings", "tenants")


@dataclass(frozen=True, slots=True)
class Project:
    """A project file, read and checked."""

    file: Path
    """Absolute."""
    agents: tuple[str, ...] = ()
    """The specs of its agent classes, ``FILE.py:Class`` or ``package.module:Class``."""
    config: Mapping[str, JsonObject] = field(default_factory=dict)
    """The configuration of agents, by type."""
    env_file: Path | None = None
    """Absolute."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables of ``env_file``. They may be secrets."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``PODIUM_…`` variables, without that of the home."""
    quotas: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Quotas by tenant: some of the keys of `coordinator.registry.tenants.QUOTAS`."""
    models: ModelsConfig = field(default_factory=ModelsConfig)
    requirements: tuple[str, ...] = ()
    """What a node has to have installed to run a deploy; as of PEP 508."""
    home: Path = DEFAULT_HOME
    """Absolute; ``--home`` and ``PODIUM_HOME`` take precedence."""

    @property
    def directory(self) -> Path:
        """The directory of the file: specs and paths are relative to it."""
        return self.file.parent

    @property
    def variables(self) -> dict[str, str]:
        """Environment and settings, as variables for the project's processes; those that are set take precedence."""
        return {**self.settings, **self.environment}


def load_project(file: Path | None = None) -> Project:
    """Read a project file.

    Args:
        file: that file; by default the one that `find_project` finds.

    Raises:
        NotFound: there is none.
        InvalidInput: it is not valid; the message names the file, the key, and how to mend it.
    """
    path = file.expanduser().absolute() if file is not None else find_project()
    if path is None:
        raise NotFound(
            f"no {PROJECT_FILE} in {Path.cwd()} or above it; podium new NAME makes a project, --project FILE names one"
        )
    return _Reader(path).read()


class _Reader:
    """Reads one file; each message begins with the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._prefix = "tool.podium." if path.name == PYPROJECT else ""

    def read(self) -> Project:
        table = self._table()
        for key in table:
            if key not in _KEYS:
                raise self._error(key, f"there is no such key; the keys are {', '.join(_KEYS)}")
        for key in URLS:
            problem = check_url(key, table.get(key, ""))
            if problem is not None:
                raise self._error(key, problem)
        settings = self._settings(table)
        env_file = self._env_file(table)
        environment = read_env_file(env_file) if env_file is not None else {}
        if "PODIUM_HOME" in environment:
            raise InvalidInput(
                f'{env_file} sets PODIUM_HOME; write home = "DIR" into [settings] of {self._path} instead'
            )
        home = Path(settings.pop("PODIUM_HOME", DEFAULT_HOME)).expanduser()
        return Project(
            self._path,
            self._agents(table),
            self._config(table),
            env_file,
            environment,
            settings,
            self._quotas(table),
            self._models(table),
            self._requirements(table),
            self._path.parent / home,
        )

    def _table(self) -> dict[str, Any]:
        content = read_toml(self._path)
        if not self._prefix:
            return content
        found = content.get("tool", {}).get("podium")
        if not isinstance(found, dict):
            raise InvalidInput(f"{self._path} has no table [tool.podium]; add it, with agents = [...]")
        return found

    def _agents(self, table: dict[str, Any]) -> tuple[str, ...]:
        specs = table.get("agents")
        if specs is None:
            raise self._error("agents", 'it is missing; name the agent classes: agents = ["file.py:Class"]')
        if not isinstance(specs, list):
            raise self._error("agents", f'it is {_kind(specs)}; write a list: agents = ["file.py:Class"]')
        for at, spec in enumerate(specs):
            if not isinstance(spec, str):
                raise self._error(
                    f"agents[{at}]", f'it is {_kind(spec)}; write "file.py:Class" or "package.module:Class"'
                )
            if spec in specs[:at]:
                raise self._error(f"agents[{at}]", f"{spec!r} is named twice; remove one")
        return tuple(specs)

    def _config(self, table: dict[str, Any]) -> dict[str, JsonObject]:
        from podium.state.errors import InvalidValue  # noqa: PLC0415  these bring pydantic along, which is slow to import
        from podium.state.plain_json import plain_json  # noqa: PLC0415

        configs = self._subtable(table, "config", "[config.TYPE]")
        checked: dict[str, JsonObject] = {}
        for agent_type, config in configs.items():
            key = f"config.{agent_type}"
            if not isinstance(config, dict):
                raise self._error(
                    key, f"it is {_kind(config)}; write a table [{self._prefix}config.TYPE] for each type"
                )
            try:
                checked[agent_type] = cast("JsonObject", plain_json(config))
            except InvalidValue as error:
                raise self._error(key + error.path.replace("/", "."), error.reason) from None
        return checked

    def _env_file(self, table: dict[str, Any]) -> Path | None:
        name = table.get("env_file")
        if name is None:
            return None
        if not isinstance(name, str) or not name:
            raise self._error("env_file", f'it is {_kind(name)}; write the path of a file: env_file = ".env"')
        path = self._path.parent / Path(name).expanduser()
        if not path.is_file():
            raise self._error(
                "env_file", f"there is no file {path}; create it, with lines NAME=value, or remove the key"
            )
        return path

    def _settings(self, table: dict[str, Any]) -> dict[str, str]:
        variables: dict[str, str] = {}
        for name, value in self._subtable(table, "settings", "[settings]").items():
            from coordinator.registry.project_settings import check_setting  # noqa: PLC0415  its library is slow to import

            problem = check_setting(name, value)
            if problem is not None:
                raise self._error(f"settings.{name}", problem)
            variables[f"PODIUM_{name.upper()}"] = str(value)
        return variables

    def _quotas(self, table: dict[str, Any]) -> dict[str, dict[str, int]]:
        quotas, problem = check_tenants(self._subtable(table, "tenants", "[tenants.NAME.quota]"))
        if problem is not None:
            raise self._error(*problem)
        return quotas

    def _models(self, table: dict[str, Any]) -> ModelsConfig:
        models, problem = check_models(self._subtable(table, "models", "[models.NAME]"), self._path.parent)
        if problem is not None:
            raise self._error(*problem)
        return models

    def _requirements(self, table: dict[str, Any]) -> tuple[str, ...]:
        found = table.get("requirements", [])
        if not isinstance(found, list):
            raise self._error("requirements", f'it is {_kind(found)}; write a list: requirements = ["httpx>=0.28"]')
        for at, text in enumerate(found):
            from podium.code.requirements import parse_requirement  # noqa: PLC0415  few projects have any

            if not isinstance(text, str):
                raise self._error(f"requirements[{at}]", f'it is {_kind(text)}; write "httpx>=0.28"')
            try:
                parse_requirement(text)
            except InvalidInput as error:
                raise self._error(f"requirements[{at}]", str(error)) from None
        return tuple(found)

    def _subtable(self, table: dict[str, Any], key: str, header: str) -> dict[str, Any]:
        found = table.get(key, {})
        if not isinstance(found, dict):
            raise self._error(key, f"it is {_kind(found)}; write a table: {header.replace('[', f'[{self._prefix}', 1)}")
        return found

    def _error(self, key: str, problem: str) -> InvalidInput:
        return InvalidInput(f"{self._path}: {self._prefix}{key}: {problem}")


def _kind(value: object) -> str:
    """Return the kind of a TOML value, in its terms."""
    kinds = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return "empty" if value == "" else kinds.get(type(value), "a date or time")
