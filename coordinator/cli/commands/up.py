"""``podium up``: serving the agents of a project over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_HOME, BlobsUrlOption, DebugOption, HomeOption, JsonOption, ProjectOption
from coordinator.cli.terminal import warn

if TYPE_CHECKING:
    import socket

    from coordinator.home import Home
    from coordinator.registry.project import Project

__all__ = ["DEFAULT_PORT", "up"]

DEFAULT_PORT: Final = 8700


def up(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: a free one.")
    ] = DEFAULT_PORT,
    detach: Annotated[bool, typer.Option("--detach", help="Serve in the background; return when it serves.")] = False,
    project: ProjectOption = None,
    home: HomeOption = DEFAULT_HOME,
    blobs_url: BlobsUrlOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Serve the agents of a project over HTTP until Ctrl-C, or `podium down`.

    The agents go on while no client is connected. With --json one object on stdout when it serves: its URL and process.
    """
    from coordinator.environment import add_variables  # noqa: PLC0415  all of these are slow to import
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.registry.project import load_project  # noqa: PLC0415

    loaded = load_project(project)
    given = context.get_parameter_source("home")
    place = Home(loaded.home if project is not None and given is not None and given.name == "DEFAULT" else home)
    add_variables(loaded.variables)  # also for the service, which this process or its child starts
    place.create(blobs_url)
    if detach:
        _serve_detached(place, loaded, host, port, json=json)
    else:
        _serve(place, loaded, host, port, json=json)


def _serve(home: Home, project: Project, host: str, port: int, *, json: bool) -> None:
    """Serve in this process."""
    import asyncio  # noqa: PLC0415
    import os  # noqa: PLC0415

    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.access.caller import OpenAccess  # noqa: PLC0415
    from coordinator.gateway.listener import listen, url_of  # noqa: PLC0415
    from coordinator.gateway.process import Gateway  # noqa: PLC0415
    from coordinator.gateway.record import gateway_lock  # noqa: PLC0415
    from coordinator.logs import log_into  # noqa: PLC0415
    from coordinator.registry.resolve import resolve  # noqa: PLC0415
    from coordinator.settings import read_settings  # noqa: PLC0415

    settings = read_settings()
    with gateway_lock(home), listen(host, port) as listener, Progress() as progress:
        _check_reach(listener, host)
        log_into(home.logs / "gateway.log")

        def tell(notice: str | None) -> None:
            progress.clear()
            if notice:
                warn(notice)
            say(f"serving {url_of(listener)}; Ctrl-C ends")
            if json:
                write_json({"url": url_of(listener), "pid": os.getpid()})

        gateway = Gateway(
            home=home,
            listener=listener,
            resolve=lambda: resolve(project),
            access=OpenAccess(),
            stop_timeout_s=settings.stop_timeout_s,
            on_progress=progress.show,
            on_ready=tell,
        )
        asyncio.run(gateway.run())
    say("ended: gateway, agents and service")


def _serve_detached(home: Home, project: Project, host: str, port: int, *, json: bool) -> None:
    """Serve in a process of its own, in a session of its own; return when it is ready."""
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.gateway.detached import start_detached  # noqa: PLC0415

    arguments = ["up", "--host", host, "--port", str(port), "--project", str(project.file), "--home", str(home.path)]
    with Progress() as progress:
        started = start_detached(home, arguments, progress.show)
    if started.record is None:
        say(started.said)
        raise typer.Exit(started.exit_code or ExitCode.UNAVAILABLE)  # it does not end before it serves
    if json:
        write_json({"url": started.record.url, "pid": started.record.pid, "log": str(started.log)})
    else:
        say(f"serving {started.record.url} (process {started.record.pid}, log {started.log}); podium down ends it")


def _check_reach(listener: socket.socket, host: str) -> None:
    """Refuse an address that other machines reach.

    Raises:
        InvalidInput: it is one.
    """
    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from coordinator.gateway.listener import is_loopback  # noqa: PLC0415

    if not is_loopback(listener):
        raise InvalidInput(f"--host {host} can be reached from other machines, and this gateway asks for no keys")
