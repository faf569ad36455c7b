"""``podium up``: serving the agents of a project over HTTP."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import (
    DEFAULT_HOME,
    BlobsUrlOption,
    HomeOption,
    JournalUrlOption,
    JsonOption,
    ProjectOption,
    command,
    home_of,
    urls_of,
)
from coordinator.cli.terminal import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coordinator.gateway.protection.rules import Rules
    from coordinator.home import Home
    from coordinator.registry.project import Project

__all__ = ["DEFAULT_PORT", "up"]

DEFAULT_PORT: Final = 8700


@command
def up(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: a free one.")
    ] = DEFAULT_PORT,
    detach: Annotated[bool, typer.Option("--detach", help="Serve in the background; return when it serves.")] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Ask for no keys; on loopback only.")] = False,
    no_local_key: Annotated[
        bool, typer.Option("--no-local-key", help="Make no key for this user's programs on this machine.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="Another name of this gateway; * for all."),
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option("--cors-origin", metavar="ORIGIN", help="Pages that may call it from elsewhere.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option("--trusted-proxy", metavar="ADDRESS", help="Whose X-Forwarded-For is believed; or a network."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Move awake agents to edited code with their next messages.")
    ] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve a page at /ui/ that talks to agents.")] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Serve for the home's service on another machine; start none.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="While another machine's service has the home, serve for it, and stand by."),
    ] = False,
    ray: Annotated[
        str,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            envvar="RAY_ADDRESS",
            help="Run the agents on the Ray cluster at HOST:PORT.",
            show_default=False,
        ),
    ] = "",
    unattended: Annotated[bool, typer.Option("--unattended", hidden=True)] = False,
    project: ProjectOption = None,
    home: HomeOption = DEFAULT_HOME,
    blobs_url: BlobsUrlOption = "",
    journal_url: JournalUrlOption = "",
    json: JsonOption = False,
) -> None:
    """Serve the agents of a project over HTTP until Ctrl-C, or `podium down`.

    The agents go on while no client is connected. With --json one object on stdout when it serves: its URL and process.
    """
    from chronicle.errors import InvalidInput  # noqa: PLC0415  all of these are slow to import
    from coordinator.environment import add_variables, set_ray_address  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.registry.project import load_project  # noqa: PLC0415
    from coordinator.settings import read_settings  # noqa: PLC0415

    if join and standby:
        raise InvalidInput("--join starts no service, and --standby one: give one of them")
    loaded = load_project(project)
    place = Home(home_of(context, home, loaded, project))
    add_variables(loaded.variables)  # also for the service, which this process or its child starts
    reach = _Reach(
        host,
        port,
        no_auth,
        tuple(allowed_host or ()),
        tuple(cors_origin or ()),
        tuple(trusted_proxy or ()),
        tls_cert.absolute() if tls_cert is not None else None,
        tls_key.absolute() if tls_key is not None else None,
        join,
        not no_local_key,
        standby,
    )

    def prepare() -> None:
        create_home(place, *urls_of(project, blobs_url, journal_url))
        if ray:
            _check_cluster(place, ray)

    wait_s = read_settings().start_wait_s
    if wait_s and not detach:
        _wait(place, reach, prepare, wait_s)
    else:
        prepare()
    if ray:
        set_ray_address(ray)  # for the service, as above
    if not unattended:
        _tell_of_deploy(place, loaded)
    if detach:
        _serve_detached(place, loaded, reach, reload=reload, ui=ui, json=json)
    else:
        with _directory_of(place, join=join, standby=standby):
            _serve(place, loaded, reach, reload=reload, ui=ui, json=json, unattended=unattended)


@dataclass(frozen=True, slots=True)
class _Reach:
    """Where the gateway listens, and whom it accepts: the options that say so."""

    host: str
    port: int
    no_auth: bool
    allowed_hosts: tuple[str, ...]
    origins: tuple[str, ...]
    proxies: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    join: bool
    local_key: bool
    standby: bool

    def rules(self, address: str) -> Rules:
        """Return the rules that they give.

        Args:
            address: of the listening socket, by which this machine's programs reach it.

        Raises:
            InvalidInput: an option cannot be used.
        """
        from chronicle.errors import InvalidInput  # noqa: PLC0415
        from coordinator.gateway.protection.rules import Rules, read_rules  # noqa: PLC0415
        from coordinator.settings import read_settings  # noqa: PLC0415

        if self.no_auth and "*" in self.allowed_hosts:
            raise InvalidInput(
                "with --no-auth and --allowed-host * any web page could call the agents (DNS rebinding): name the hosts"
            )
        settings = read_settings()
        return read_rules(
            host=self.host,
            allowed_hosts=(*self.allowed_hosts, address),
            origins=self.origins,
            trusted_proxies=self.proxies,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            limits=Rules(
                requests_per_s=settings.requests_per_s,
                connections=settings.connections,
                connections_per_address=settings.connections_per_address,
                body_bytes=settings.body_bytes,
                upload_bytes=settings.upload_bytes,
            ),
        )

    def arguments(self) -> list[str]:
        """Return the options, for the command of another process."""
        found = ["--host", self.host, "--port", str(self.port)]
        found += ["--no-auth"] if self.no_auth else []
        found += ["--join"] if self.join else []
        found += [] if self.local_key else ["--no-local-key"]
        found += ["--standby"] if self.standby else []
        for option, values in (
            ("--allowed-host", self.allowed_hosts),
            ("--cors-origin", self.origins),
            ("--trusted-proxy", self.proxies),
            ("--tls-cert", (self.tls_cert,) if self.tls_cert is not None else ()),
            ("--tls-key", (self.tls_key,) if self.tls_key is not None else ()),
        ):
            for value in values:
                found += [option, str(value)]
        return found


def _check_cluster(home: Home, ray: str) -> None:
    """Check that the Ray cluster at an address answers, and that no service of the home has its agents elsewhere."""
    from coordinator.cluster_address import check_address  # noqa: PLC0415  only with --ray

    check_address(ray)
    home.check_cluster(ray)


def _wait(home: Home, reach: _Reach, prepare: Callable[[], None], wait_s: float) -> None:
    """Prepare the home when what that needs can be reached; the gateway's address answers probes meanwhile.

    It waits for the database, the bucket and the Ray cluster, and where they count for the service on another machine,
    and the first key.

    Raises:
        Unavailable: something is not there in time.
    """
    from chronicle.errors import Unavailable  # noqa: PLC0415  only where it waits
    from coordinator.cli.starting import waited  # noqa: PLC0415
    from coordinator.gateway.process.home_access import has_keys_for_others  # noqa: PLC0415
    from coordinator.gateway.process.listener import is_loopback, listen  # noqa: PLC0415
    from coordinator.gateway.process.serving import tls_context  # noqa: PLC0415
    from coordinator.health import answering  # noqa: PLC0415
    from coordinator.service.connecting import serves_elsewhere  # noqa: PLC0415

    with listen(reach.host, reach.port) as listener:
        tls = reach.rules(str(listener.getsockname()[0])).tls

        def prepare_all() -> None:
            prepare()
            if reach.join and not serves_elsewhere(home):
                raise Unavailable(f"no service of the home {home.path} can be reached; podium up starts one")
            if not (reach.no_auth or is_loopback(listener) or has_keys_for_others(home)):
                raise Unavailable("there is no key yet for those who call from other machines: podium keys create NAME")

        with answering(listener, tls=tls_context(tls) if tls is not None else None):
            waited(prepare_all, wait_s)


@contextmanager
def _directory_of(home: Home, *, join: bool, standby: bool) -> Iterator[None]:
    """Have the directory for sockets that a service makes, if the service is elsewhere.

    Raises:
        HomeError: a service runs in this directory of the home, or the home has one directory.
    """
    if not (join or standby):
        yield
        return
    from podium.errors import HomeError  # noqa: PLC0415

    if not home.is_shared:
        option = "--join" if join else "--standby"
        raise HomeError(
            f"the home {home.path} is on this machine only: nothing to join, nor to stand by for; podium up without "
            f"{option}"
        )
    if join and home.service_alive():
        raise HomeError(f"a service runs in {home.path}; podium up without --join serves it")
    home.make_run_dir()
    try:
        yield
    finally:
        if not (home.service_alive() or home.node_alive()):
            home.remove_run_dir()


def _serve(
    home: Home, project: Project, reach: _Reach, *, reload: bool, ui: bool, json: bool, unattended: bool
) -> None:
    """Serve in this process.

    Args:
        unattended: what is said goes to a log, which must not have a key.
    """
    import asyncio  # noqa: PLC0415
    import gc  # noqa: PLC0415
    import os  # noqa: PLC0415

    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from coordinator.access.quotas import Quota  # noqa: PLC0415
    from coordinator.gateway.process.home_access import HomeAccess  # noqa: PLC0415
    from coordinator.gateway.process.listener import is_loopback, listen, url_of  # noqa: PLC0415
    from coordinator.gateway_record import gateway_lock  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from coordinator.log_echo import echoed  # noqa: PLC0415
    from coordinator.logs import log_into  # noqa: PLC0415
    from coordinator.models.config_file import store_config  # noqa: PLC0415
    from coordinator.settings import read_settings  # noqa: PLC0415

    settings = read_settings()
    if reach.standby and not settings.service_listen:
        raise InvalidInput(
            "gateways of other machines follow the home to the service that takes over: give PODIUM_SERVICE_LISTEN, "
            "HOST:PORT at which this one is to listen, such as 0.0.0.0:8701"
        )
    with gateway_lock(home), listen(reach.host, reach.port) as listener, Progress() as progress:
        rules = reach.rules(str(listener.getsockname()[0]))
        access = HomeAccess(
            home,
            SystemClock(),
            no_auth=reach.no_auth,
            loopback=is_loopback(listener),
            # Each new pod of gateways would leave a key with all rights in the database.
            local_key=reach.local_key and (is_loopback(listener) or not (reach.join or reach.standby)),
            key_requests_per_s=settings.requests_per_s,
        )
        gc.disable()  # a sixth of the import is collections that find nothing
        from coordinator.gateway.process.gateway import Gateway  # noqa: PLC0415  a second: what is refused is sooner

        gc.freeze()
        gc.enable()

        url = url_of(listener, tls=rules.tls is not None)
        log_into(home.logs / "gateway.log")

        def tell(notice: str | None) -> None:
            progress.clear()
            if notice:
                warn(notice)
            if not unattended:
                _show_key(home, access.new_local_key)
            say(f"serving {url}; Ctrl-C ends")
            if ui:
                say(_page(home, url, no_auth=reach.no_auth))
            if json:
                write_json({"url": url, "pid": os.getpid()})

        if not reach.join:
            records = open_records(home)
            store_config(records.documents(), project.models)
            records.set_quotas({name: Quota(**limits) for name, limits in project.quotas.items()})
        gateway = Gateway(
            home=home,
            listener=listener,
            project_file=project.file,
            follow_edits=reload,
            access=access,
            rules=rules,
            stop_timeout_s=settings.stop_timeout_s,
            on_progress=progress.show,
            on_ready=tell,
            page=ui,
            error_texts=settings.error_details == "all",
            joins=reach.join,
            stands_by=reach.standby,
        )

        async def serve() -> None:
            async with access:
                await gateway.run()

        # Of a gateway in the background stderr is one of the logs.
        with echoed(home.logs) if settings.log_stderr and not unattended else nullcontext():
            asyncio.run(serve())
    say("ended: gateway" if reach.join else "ended: gateway, agents and service")


def _tell_of_deploy(home: Home, project: Project) -> None:
    """Say that agents run a deploy, if the home has a current one."""
    from contextlib import closing  # noqa: PLC0415

    from podium.code.deploys import current_deploy  # noqa: PLC0415

    with closing(home.journal()) as store:
        deploy = current_deploy(store)
    if deploy is not None:
        say(
            f"agents run deploy {deploy.number}, not the files of {project.directory}: podium deploy makes their code "
            "current, podium deploy --withdraw has agents run the files"
        )


def _serve_detached(home: Home, project: Project, reach: _Reach, *, reload: bool, ui: bool, json: bool) -> None:
    """Serve in a process of its own, in a session of its own; return when it is ready."""
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.access.local_key import read_local_key  # noqa: PLC0415
    from coordinator.gateway.process.detached import start_detached  # noqa: PLC0415
    from coordinator.gateway_record import check_no_gateway  # noqa: PLC0415

    check_no_gateway(home)  # the other process would find it out after its imports
    arguments = ["up", "--unattended", *reach.arguments(), "--project", str(project.file), "--home", str(home.path)]
    arguments += ["--reload"] if reload else []
    arguments += ["--ui"] if ui else []
    key = read_local_key(home.path)
    with Progress() as progress:
        started = start_detached(home, arguments, progress.show)
    if started.record is None:
        say(started.said)
        raise typer.Exit(started.exit_code or ExitCode.UNAVAILABLE)  # it does not end before it serves
    new_key = read_local_key(home.path)
    _show_key(home, new_key if new_key != key else None)
    if json:
        write_json({"url": started.record.url, "pid": started.record.pid, "log": str(started.log)})
    else:
        say(f"serving {started.record.url} (process {started.record.pid}, log {started.log}); podium down ends it")
        if ui:
            say(_page(home, started.record.url, no_auth=reach.no_auth))


def _page(home: Home, url: str, *, no_auth: bool) -> str:
    """Return what a user is told of the page. The key is in the fragment, which a browser sends to nobody."""
    if no_auth:
        return f"the page: {url}/ui/"
    return f"the page: {url}/ui/#key=KEY, with a key such as the one in {home.path / 'local.key'}"


def _show_key(home: Home, text: str | None) -> None:
    """Show a new local key, once."""
    if text is not None:
        say(f"the key of this home, also in {home.path / 'local.key'}; it is not shown again: {text}")
