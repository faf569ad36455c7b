"""The service's process: owns the home and the Ray cluster, and serves clients until the last one disconnects.

If a client has pinned it, it serves until a client or a signal ends it.

It is the edge of an embedded podium: it admits messages to the journal, requests routes from the coordinator, and
forwards the frames that hosts stream to clients. Run as ``python -m coordinator.service.daemon --home DIR``.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import signal
import socket
import sys
from contextlib import AsyncExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import InvalidInput, StorageRefused, Unavailable
from coordinator.gateway_record import gateway_runs
from coordinator.home import Home
from coordinator.service.protocol import AWAITS_REGISTRATION, EXIT_HELD, EXIT_RAY_DIED, STANDBY
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from coordinator.homes.generation import GenerationWatch
    from coordinator.homes.records import ServiceClaim
    from coordinator.ray.router import Router
    from coordinator.registry.registry import Registry
    from coordinator.service.server import ServiceServer
    from coordinator.service.standby import Standby
    from coordinator.settings import Settings

__all__ = ["main"]

_log: Final = structlog.stdlib.get_logger("coordinator.service.daemon")

_WATCHDOG_MARGIN_S: Final = 60.0
"""Margin of the watchdog beyond the timeouts of the individual steps of start and end."""
_CLAIM_EVERY_S: Final = 5.0
"""Interval of looks at the claim on a home of several directories. Two services do no harm: an agent has one lease."""
_FIRST_CLIENT_S: Final = 30.0
"""Timeout for the first client to connect; then the service ends."""


def main() -> int:
    """Run the service of a home.

    Returns:
        0 when it was unused or was ended in order, `EXIT_HELD` if another service holds the home, `EXIT_RAY_DIED`.
    """
    parser = argparse.ArgumentParser(prog="python -m coordinator.service.daemon", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home directory")
    parser.add_argument(
        AWAITS_REGISTRATION, action="store_true", help="let messages of unknown types wait for the agent classes"
    )
    parser.add_argument(
        STANDBY, action="store_true", help="wait for the claim on the home, and give it away if ordered"
    )
    arguments = parser.parse_args()
    home = Home(arguments.home).create()
    with home.service_lock() as held:
        if not held:
            return EXIT_HELD
        if home.node_alive():
            raise HomeError(f"podium node runs on {home.path}: give the service another directory of the home")
        home.make_run_dir()
        try:
            _publish_stage(home, "starting Ray")
            from coordinator.host.node.process_marks import take_mark_off  # noqa: PLC0415
            from coordinator.host.node.workspace_paths import WorkspacePaths  # noqa: PLC0415
            from coordinator.logs import log_to  # noqa: PLC0415
            from coordinator.settings import read_settings  # noqa: PLC0415  after the lock: a process without it exits sooner

            log_to(home.logs / "service.log")
            take_mark_off()  # this process may have been started by an agent's process
            settings = read_settings()
            with (
                _claim(home, is_held=not arguments.standby) as (claim, generation),
                closing(home.journal()),  # migrated before the coordinator and hosts open it, and closed after them
                WorkspacePaths(settings.workspaces, home.id).claimed(home.path),
            ):
                return asyncio.run(
                    _serve(
                        home,
                        settings,
                        claim,
                        generation,
                        awaits_registration=arguments.awaits_registration,
                        is_standby=arguments.standby,
                    )
                )
        finally:
            if not (arguments.standby and gateway_runs(home)):  # which has its record there, and goes on
                home.remove_run_dir()


@contextmanager
def _claim(home: Home, *, is_held: bool) -> Iterator[tuple[ServiceClaim, GenerationWatch]]:
    """Yield the claim on a home, and what watches its generation, which is checked; release it at the end.

    Args:
        is_held: whether the claim is held from the beginning.

    Raises:
        HomeError: the service of another directory has it.
    """
    from coordinator.homes.opening import open_records  # noqa: PLC0415

    records = open_records(home)
    claim = records.service_claim()
    if is_held:
        claim.hold()
    try:
        generation = records.generation_watch()
        generation.check()
        yield claim, generation
    finally:
        claim.release()


async def _serve(
    home: Home,
    settings: Settings,
    claim: ServiceClaim,
    generation: GenerationWatch,
    *,
    awaits_registration: bool,
    is_standby: bool,
) -> int:
    """Serve until the end; return the exit code."""
    from coordinator.environment import withheld, withhold  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from coordinator.host.node.process_marks import environment_without_mark  # noqa: PLC0415
    from coordinator.models.config_file import read_config  # noqa: PLC0415
    from coordinator.models.supervisor import ModelProcess  # noqa: PLC0415
    from coordinator.process_environment import ProcessEnvironment  # noqa: PLC0415
    from coordinator.store.credentials import credentials_of  # noqa: PLC0415
    from coordinator.store.supervisor import StoreProcess  # noqa: PLC0415

    gc.disable()  # a sixth of the imports is collections that find nothing
    from coordinator.ray.router import Router  # noqa: PLC0415  importing Ray takes 1.5 s
    from coordinator.service.message_delivery import MessageDelivery  # noqa: PLC0415
    from coordinator.service.server import ServiceServer  # noqa: PLC0415
    from coordinator.service.standby import Standby  # noqa: PLC0415
    from podium.tasks import beside  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    surroundings = ProcessEnvironment.of_this_process()  # before Ray adds its own variables
    documents = open_records(home).documents()
    models = ModelProcess(home, documents, environment_without_mark())
    store = StoreProcess(home, environment_without_mark(), settings.inbox_limit) if home.is_shared else None
    withhold(read_config(documents).key_variables)  # from Ray, and so from all processes of agents
    stopping = asyncio.Event()
    _on_signals(stopping.set)
    router = Router(home, settings, store.access if store is not None else None)
    stack = AsyncExitStack()
    standby = Standby(settings.service_name or socket.gethostname(), documents, claim) if is_standby else None
    try:
        _start_watchdog(settings.start_timeout_s + _WATCHDOG_MARGIN_S)
        if store is not None:
            await stack.enter_async_context(store)
        if standby is not None:
            await stack.enter_async_context(standby)
            faulthandler.cancel_dump_traceback_later()

            async def prepare() -> bool:
                deployed = await asyncio.to_thread(_deployed, home)
                with withheld(credentials_of(home)):
                    prepared = await router.stand_by(deployed, on_stage=lambda text: _publish_stage(home, text))
                _on_signals(stopping.set)  # again, as below
                return prepared

            if not await standby.take_claim(stopping, prepare, lambda text: _publish_stage(home, text)):
                return 0
            await asyncio.to_thread(generation.check)
            _start_watchdog(settings.start_timeout_s + _WATCHDOG_MARGIN_S)
        with withheld(credentials_of(home)):
            await router.start(on_stage=lambda text: _publish_stage(home, text))
        faulthandler.cancel_dump_traceback_later()
        deliver = MessageDelivery(router, settings.silence_s).deliver
        server = ServiceServer(
            home, settings, router, deliver, surroundings, models, awaits_registration=awaits_registration
        )
        _on_signals(server.end)  # again: Ray's start installs a handler that ends this process at once
        if stopping.is_set():
            server.end()
        async with models, server.listening(), _door(home, settings, server):
            keeping = beside(_keep_claim(claim, generation, server), "keep-claim") if home.is_shared else nullcontext()
            following = (
                beside(_follow_orders(standby, server), "follow-orders") if standby is not None else nullcontext()
            )
            with beside(_end_with_ray(router, server), "watch-ray") as watching, keeping, following:
                await server.wait_unused(first_client_s=_FIRST_CLIENT_S)
                code = EXIT_RAY_DIED if watching.done() else 0
            if server.is_ordered_away:
                server.hand_over()
                claim.release()
            server.admit_no_more()
            _start_watchdog(server.stop_timeout_s + _WATCHDOG_MARGIN_S)  # until the process has ended
            await router.end_agents(server.stop_timeout_s)  # followers of running turns learn how they end
    finally:
        _start_watchdog(settings.stop_timeout_s + _WATCHDOG_MARGIN_S)
        await router.stop()
        await stack.aclose()
    return code


def _deployed(home: Home) -> Registry | None:
    """Return the classes of the current deploy of a home."""
    from coordinator.registry.deploying import deployed_registry  # noqa: PLC0415

    with closing(home.journal()) as store, closing(home.blobs()) as blobs:
        return deployed_registry(store, blobs)


def _door(home: Home, settings: Settings, server: ServiceServer) -> AbstractAsyncContextManager[object]:
    """Return the door for other machines, if there is to be one.

    Raises:
        InvalidInput: the settings of it cannot be used.
    """
    if not settings.service_listen and not home.is_shared:
        return nullcontext()
    from coordinator.door import options_of  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from coordinator.service.door import no_door, open_door  # noqa: PLC0415

    if not settings.service_listen:
        return no_door(open_records(home).documents())
    options = options_of(
        settings.service_listen, settings.service_host, settings.service_tls_cert, settings.service_tls_key
    )
    if not home.is_shared:
        raise InvalidInput(
            "PODIUM_SERVICE_LISTEN is for a home that other machines reach, whose journal is in PostgreSQL "
            "(PODIUM_JOURNAL_URL); this one is in a directory"
        )
    return open_door(options, open_records(home).documents(), server.serve, home.models_socket)


async def _follow_orders(standby: Standby, server: ServiceServer) -> None:
    """Have the home handed over when another service that stands by is ordered to serve it."""
    while True:
        await standby.wait_ordered_away()
        if await standby.begin_draining():
            server.end(ordered_away=True)
            return


async def _end_with_ray(router: Router, server: ServiceServer) -> None:
    """End the service if its Ray dies: the next client starts another one, which loses nothing."""
    what = await router.lost()
    _log.error("ray_died", process=what, then="this service ends, and the next command starts another one")
    server.end()


async def _keep_claim(claim: ServiceClaim, generation: GenerationWatch, server: ServiceServer) -> None:
    """End the service if that of another directory has claimed the home, while the database was not reached.

    Also notice that the database was replaced meanwhile.
    """
    while True:
        await asyncio.sleep(_CLAIM_EVERY_S)
        try:
            await asyncio.to_thread(claim.hold)
            await asyncio.to_thread(generation.check)
        except (Unavailable, StorageRefused) as error:
            _log.warning("claim_not_known", error=str(error))
        except HomeError as error:
            _log.error("claim_lost", error=str(error))
            server.end()
            return


def _start_watchdog(limit_s: float) -> None:
    """Start a watchdog that logs the stacks of all threads and ends this process, and Ray with it, after a limit.

    A service that hangs would keep the home locked.
    """
    faulthandler.dump_traceback_later(limit_s, exit=True)


def _on_signals(end: Callable[[], None]) -> None:
    """End in order on a signal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end)


def _publish_stage(home: Home, text: str) -> None:
    """Publish the stage of the start for waiting clients."""
    home.stage_path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
