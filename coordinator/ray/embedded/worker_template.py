"""A process that has imported Ray and Podium's hosts, and is forked for each worker of an embedded Ray.

A worker's imports take a second of CPU time and 50 MB. A forked worker has them at once, and shares most of their
memory with the other workers. The template has one thread and never runs user code, so that a fork is always safe. It
ends when its owner, the service, does: its standard input is then closed. Its workers end with the raylet, and it waits
for them: nothing writes to the service's directory when the template has ended.

Its environment has Ray's variables of its workers: Ray's library reads them when it is imported. A worker of another
job or raylet is refused, and its launcher then becomes the worker. Launchers that connect before the imports are done
wait in the queue of the socket, which the service has made.

The protocol: `coordinator.ray.embedded.worker_launcher` connects, sends the length of its request with its three
standard streams, and the request: directory, arguments and environment, separated by two zero bytes, the elements of
the latter by one. The answer is a plus sign.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from chronicle.system.heap import pack_heap_before_fork
from coordinator.environment import replace_variables, variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["start"]

_SOCKET: Final = "workers.sock"
"""As `worker_launcher` has it, which imports nothing of Podium."""
_VARIABLES: Final = ("RAY_RAYLET_PID", "RAY_JOB_ID")
"""Variables of Ray's that its library reads once."""
_ACTORS: Final = tuple(f"coordinator.ray.{name}" for name in ("coordinator_actor", "node_manager", "host_actor"))
"""By their names: they import, in the end, this module."""
_LATER: Final = (
    "chronicle.journal.sqlite",
    "coordinator.homes.sqlite.records",
    "coordinator.ray.coordinator_config",
    "encodings.ascii",
    "pkgutil",
    "pydantic.v1.fields",
    "ray._common.pydantic_compat",
    "ray._common.usage.usage_lib",
    "ray._private.arrow_serialization",
    "ray.util.serialization_addons",
    "starlette.concurrency",
    "starlette.datastructures",
)
"""Modules that workers import when they have connected: 9 MB. `tests/e2e/test_weight.py` finds what is missing."""
_OOM_SCORE_ADJUSTMENT: Final = "1000"
"""As the raylet gives to what it executes, which is the launcher: the kernel ends agents before it ends Ray."""
_BACKLOG: Final = 64
_REQUEST_S: Final = 10.0
"""Timeout for a launcher to send its request: it has it ready."""
_WORKERS_END_S: Final = 10.0
"""Timeout for workers to end after the service: they look each second whether the raylet runs."""
_BOOTSTRAP: Final = (
    "'podium worker template'; import sys; sys.path.append({package!r}); "
    "from coordinator.ray.embedded.worker_template import main; main(int(sys.argv[1]))"
)
"""Finds this very package, and no module of the directory of the service."""


@dataclass(frozen=True, slots=True)
class _Request:
    """Arguments and environment of a launcher."""

    streams: Sequence[int]
    directory: str
    arguments: Sequence[str]
    variables: Mapping[str, str]


def start(run_dir: Path, log: Path, raylet_pid: int, job_id: str) -> subprocess.Popen[bytes]:
    """Start the template of a service; the service's end closes the template's standard input, which ends it.

    Args:
        run_dir: the directory above Ray's.
        log: for what it writes.
        raylet_pid: the process of the raylet that starts the workers.
        job_id: the service's, in Ray.
    """
    package = os.fspath(Path(__file__).absolute().parents[3])
    path = run_dir / _SOCKET
    path.unlink(missing_ok=True)
    of_ray = dict(zip(_VARIABLES, (str(raylet_pid), job_id), strict=True))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, log.open("ab") as output:
        listener.bind(os.fspath(path))
        listener.listen(_BACKLOG)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP.format(package=package), str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd="/",  # the caller's directory must not stay in use
            env={**variables(), **of_ray},
            pass_fds=[listener.fileno()],
        )


def main(descriptor: int) -> None:
    """Fork workers until the standard input ends.

    Args:
        descriptor: of the listening socket.
    """
    gc.disable()  # a sixth of the imports is collections that find nothing
    script = _import_all()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        gc.collect()
        pack_heap_before_fork()  # a worker would write to, and so copy, pages all over what it shares
        gc.freeze()  # so would a collection in a worker
        gc.enable()
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    selector.unregister(listener)
                    listener.close()
                    selector.unregister(0)
                    _await_workers(selector)
                    return
                if key.data is not None:  # a worker has ended
                    _reap(selector, key)
                    continue
                connection, _ = listener.accept()
                with connection:
                    worker = _serve(connection, script, selector)
                if worker is not None:
                    selector.register(os.pidfd_open(worker), selectors.EVENT_READ, worker)


def _reap(selector: selectors.BaseSelector, worker: selectors.SelectorKey) -> None:
    """Release an ended worker; the kernel reports its end to others only then."""
    selector.unregister(worker.fd)
    os.close(worker.fd)
    os.waitpid(worker.data, 0)


def _await_workers(selector: selectors.BaseSelector, patience_s: float = _WORKERS_END_S) -> None:
    """Wait until all workers have ended, and kill those that take longer than ``patience_s``."""
    deadline = time.monotonic() + patience_s
    while workers := list(selector.get_map().values()):
        ended = selector.select(max(deadline - time.monotonic(), 0))
        for key, _ in ended:
            _reap(selector, key)
        if not ended:
            for worker in workers:
                os.kill(worker.data, signal.SIGKILL)
                _reap(selector, worker)


def _serve(connection: socket.socket, script: str, selector: selectors.BaseSelector) -> int | None:
    """Fork a worker for a launcher; return its process, or ``None`` if the request was not served."""
    request = _received(connection)
    if request is None:
        return None
    worker = None
    if all(request.variables.get(name) == value for name, value in variables().items() if name in _VARIABLES):
        with suppress(OSError):  # too many processes, or too little memory: the launcher becomes the worker
            worker = os.fork()
        if worker == 0:
            for key in selector.get_map().values():  # the listener, and what watches other workers
                os.close(key.fd)  # 0 is replaced below
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.detach()  # or it closes what has its number then, at the end of the worker
            selector.close()
            connection.close()
            _become_worker(script, request)
        if worker is not None:
            with suppress(OSError):
                connection.send(b"+")
    for stream in request.streams:
        os.close(stream)
    return worker


def _import_all() -> str:
    """Import what workers import; return the script of a worker."""
    from ray._private.workers import default_worker  # noqa: PLC0415  this module is also imported to start the template

    with _no_random_ids():
        for module in _ACTORS:
            importlib.import_module(module)
    for module in _LATER:
        with suppress(ImportError):
            importlib.import_module(module)
    assert default_worker.__file__ is not None
    return default_worker.__file__


@contextmanager
def _no_random_ids() -> Iterator[None]:
    """Have declarations of actors draw no id from Ray's generator: its state would be the same in each worker.

    Workers that start at the same moment would store their first objects under one random id, and one of them would
    die of it. Ray's generator takes its seed when it is first used, so each worker has to be the first user of its own.
    """
    actor: Any = importlib.import_module("ray.actor")
    kind = actor.ActorClassID
    actor.ActorClassID = SimpleNamespace(from_random=lambda: kind(os.urandom(kind.size())))
    try:
        yield
    finally:
        actor.ActorClassID = kind


def _received(connection: socket.socket) -> _Request | None:
    """Receive a request; ``None`` if its launcher died meanwhile, or became the worker after its deadline."""
    connection.settimeout(_REQUEST_S)
    streams: Sequence[int] = ()
    try:
        head, streams, _, _ = socket.recv_fds(connection, 4, 3)
        size = int.from_bytes(head, "big")
        with connection.makefile("rb") as file:
            body = file.read(size)
        waits = not select.select([connection], [], [], 0)[0]  # it is readable when its launcher has closed it
    except OSError:
        size, body, waits = -1, b"", False
    if len(body) != size or len(streams) != 3 or not waits:
        for stream in streams:
            os.close(stream)
        return None
    directory, arguments, environment = body.decode("utf-8", "surrogateescape").split("\0\0")
    lines = dict(line.split("=", 1) for line in environment.split("\0"))
    return _Request(streams, directory, arguments.split("\0"), lines)


def _become_worker(script: str, request: _Request) -> None:
    """Run a worker in this forked process to its end."""
    os.setpgid(0, 0)  # as the raylet's own children
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJUSTMENT, encoding="ascii")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    replace_variables(request.variables)
    os.chdir(request.directory)
    sys.argv = [script, *request.arguments]
    importlib.import_module("ray._raylet").Config.initialize("")  # it reads the mode of authentication again
    runpy.run_path(script, run_name="__main__")
    sys.exit()
