"""The options and arguments that several subcommands of ``podium`` have."""

from __future__ import annotations

import inspect
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.cli_kit.options import DebugOption
from coordinator.cli.completion import agent_addresses
from coordinator.cli.target import Target
from coordinator.environment import DEFAULT_HOME, variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.registry.project import Project

__all__ = [
    "DEFAULT_HOME",
    "AgentArgument",
    "ApiKeyOption",
    "BlobsUrlOption",
    "HomeOption",
    "JournalUrlOption",
    "JsonOption",
    "MomentArgument",
    "ProjectOption",
    "UrlOption",
    "YesOption",
    "command",
    "home_of",
    "short_name",
    "urls_of",
]


def _home(context: typer.Context, value: Path) -> Path:
    """Return the home of a command: the one that was given, else that of the project, else the default."""
    if _is_given(context, "home") and _is_given(context, "url"):
        raise typer.BadParameter("give --home or --url, not both")
    if _is_home_given(context):
        return value
    from coordinator.registry.project_file import home_of_project  # noqa: PLC0415  --help does not need it

    return home_of_project() or value


def home_of(context: typer.Context, home: Path, project: Project | None, project_file: Path | None) -> Path:
    """Return the home of a command with `ProjectOption`: that of the named project, unless a home was given.

    Args:
        home: the command's `HomeOption`.
        project: the project that is used.
        project_file: the command's `ProjectOption`.
    """
    if project is None or project_file is None or _is_home_given(context):
        return home
    return project.home


def urls_of(project_file: Path | None, blobs_url: str, journal_url: str) -> tuple[str, str]:
    """Return where a new home keeps its blobs and its journal: as given, by variables, or as the project says.

    Args:
        project_file: the command's `ProjectOption`, if it has one; the variables of the project are set.
        blobs_url: the command's `BlobsUrlOption`.
        journal_url: the command's `JournalUrlOption`.
    """
    from coordinator.registry.project_file import url_of_project  # noqa: PLC0415  --help does not need it

    given = {"blobs": blobs_url, "journal": journal_url}
    blobs, journal = (
        url or variables().get(f"PODIUM_{key.upper()}_URL") or url_of_project(key, project_file)
        for key, url in given.items()
    )
    return blobs, journal


def _is_home_given(context: typer.Context) -> bool:
    source = context.get_parameter_source("home")
    return source is not None and source.name != "DEFAULT"


def _url(context: typer.Context, value: str) -> str:
    """Return the URL of the home's gateway; empty for the home on this machine. ``--home`` overrides the variable."""
    if _is_given(context, "home"):
        if _is_given(context, "url"):
            raise typer.BadParameter("give --home or --url, not both")
        return ""
    return value


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line. Those are read before the others."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def short_name(name: str | None) -> str | None:
    """Return an agent's address without the tenant ``default``, which need not be named."""
    return name.removeprefix("default:") if name is not None else None


HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        metavar="DIR",
        envvar="PODIUM_HOME",
        help="Where the agents are kept.",
        show_default=True,
        callback=_home,
    ),
]
UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="PODIUM_URL",
        help="The server of the agents' home, instead of a home on this machine.",
        show_default=False,
        callback=_url,
    ),
]
ApiKeyOption = Annotated[
    str, typer.Option("--key", metavar="KEY", envvar="PODIUM_KEY", help="The API key for --url.", show_default=False)
]
ProjectOption = Annotated[
    Path | None, typer.Option("--project", metavar="FILE", help="The podium.toml; default: the nearest one upwards.")
]
JournalUrlOption = Annotated[str, typer.Option("--journal-url", envvar="PODIUM_JOURNAL_URL", hidden=True)]
"""`coordinator.settings.Settings.journal_url`, read as that of the blobs."""
BlobsUrlOption = Annotated[str, typer.Option("--blobs-url", envvar="PODIUM_BLOBS_URL", hidden=True)]
"""`coordinator.settings.Settings.blobs_url`, read from the environment without its library, which is slow to import."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
MomentArgument = Annotated[
    str,
    typer.Argument(
        metavar="AGENT[@TURN]",
        help="Such as hello/alice, or hello/alice@3 after turn 3.",
        autocompletion=agent_addresses,
        callback=short_name,
    ),
]
AgentArgument = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="An agent's address, such as hello/alice.",
        autocompletion=agent_addresses,
        callback=short_name,
    ),
]


_TARGET: Final = {
    "home": (HomeOption, DEFAULT_HOME),
    "url": (UrlOption, ""),
    "api_key": (ApiKeyOption, ""),
    "json": (JsonOption, False),
}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command as Typer takes it, with ``--debug`` as its last option.

    Args:
        function: its parameter ``target``, if it has one, stands for the options of a `Target`.
    """
    signature = inspect.signature(function, eval_str=True)
    takes: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        takes += _options(_TARGET) if parameter.name == "target" else [parameter]
    takes += _options({"debug": (DebugOption, False)})  # noted while it is parsed

    @wraps(function)
    def run(*, debug: bool, **given: Any) -> None:  # noqa: ARG001
        if "target" in signature.parameters:
            home, url, key, json = (given.pop(name) for name in _TARGET)
            given["target"] = Target(home, url, key, json)
        function(**given)

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in takes}
    run.__dict__["__signature__"] = inspect.Signature(takes)  # Typer reads both
    return run


def _options(named: dict[str, tuple[Any, Any]]) -> list[inspect.Parameter]:
    only = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, only, annotation=kind, default=value) for name, (kind, value) in named.items()]
