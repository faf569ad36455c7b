"""The zygote: a warm process from which a node's mount servers are forked.

Starting a mount server afresh takes 170 ms and 18 MB, most of it imports; forking one from a process that has imported
everything takes a few milliseconds and shares its memory. The zygote is started by exec, in a session of its own, with
one thread, so that a fork is always safe and it never contains user code or Ray. This module starts, finds and ends it,
and imports nothing of a server; the process itself is `chronicle.fuse.zygote.main`.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from chronicle.control.connections import ControlClient
from chronicle.errors import ChronicleError, Unavailable
from chronicle.fuse.mountpoints.availability import DEFAULT_TRANSPORT, Transport
from chronicle.system.locks import is_locked

__all__ = ["is_alive", "is_running", "lock_path", "shut_down", "start"]

_START_DEADLINE_S: Final = 30.0
"""For the imports, on a busy machine; usually half a second."""
_CALL_DEADLINE_S: Final = 10.0
_END_DEADLINE_S: Final = 20.0
"""Longer than the zygote waits for a server before it kills it."""
_BOOTSTRAP: Final = (
    "'chronicle mount service'; import os, sys; fd = os.open('/proc/self/comm', os.O_WRONLY); "
    "os.write(fd, b'chronicle mount'); os.close(fd); "
    "sys.path.append({package!r}); from chronicle.fuse.zygote.main import main; sys.exit(main(sys.argv[1:]))"
)
"""Does what ``-m chronicle.fuse.zygote.main`` does, but finds this very package, and no module of the caller's
directory, where there could be a ``logging.py``. It begins with the text that ``ps`` is to show; the name is what
``top`` shows, for servers too. A title that is written after the imports cost each of them 30 to 60 KiB of its 3.8
MiB."""


def start(
    socket_path: Path,
    mounts_dir: Path,
    log_path: Path,
    owner_pid: int | None = None,
    *,
    transport: Transport = DEFAULT_TRANSPORT,
    request_deadline_s: float | None = None,
    until_idle: bool = False,
    few_mounts: bool = False,
    blobs_url: str = "",
) -> int:
    """Start a zygote in a session of its own, or find one that runs there already, and return its process id.

    Args:
        socket_path: where it will listen; the directory is made, for this user only.
        mounts_dir: the parent of this node's mountpoints. Each home has its own.
        log_path: its log and that of its servers, a line for each event.
        owner_pid: it ends, with all its mounts, when this process does; ``None``: when told to.
        transport: how its servers talk to the kernel; one that runs already keeps its own.
        request_deadline_s: a server that makes no progress on a request for so long is replaced; default a minute.
        until_idle: it ends when its last mount is gone, or if none comes within some seconds.
        few_mounts: it warms up for a moment only; its servers share less memory. So does one that ends when it is idle.
        blobs_url: a blob store of its mounts: its library is loaded once, and not by each server.

    Raises:
        Unavailable: it did not start; the message has the end of its log.
    """
    for directory in (socket_path.parent, mounts_dir, log_path.parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    package = os.fspath(Path(__file__).absolute().parents[3])
    command = [sys.executable, "-P", "-c", _BOOTSTRAP.format(package=package)]
    command += ["--socket", os.fspath(socket_path.absolute()), "--mounts", os.fspath(mounts_dir.absolute())]
    command += ["--transport", transport]
    if request_deadline_s is not None:
        command += ["--request-deadline", str(request_deadline_s)]
    if owner_pid is not None:
        command += ["--owner", str(owner_pid)]
    if until_idle:
        command += ["--until-idle"]
    if few_mounts:
        command += ["--few-mounts"]
    protocol = blobs_url.partition("://")[0]
    if protocol not in ("", "file", "memory"):
        command += ["--preload", protocol]
    until = time.monotonic() + _START_DEADLINE_S
    while True:
        running = is_running(socket_path)
        if running is not None:
            return running
        # Try again if another one listened, but ended with its last mount before it was asked.
        if time.monotonic() > until or not _listens(command, log_path):
            break
    tail = log_path.read_text(errors="replace").splitlines()[-3:]
    raise Unavailable(f"the mount service did not start; {log_path} ends with: {' / '.join(tail)}")


def _listens(command: list[str], log_path: Path) -> bool:
    """Start a zygote, and return when it listens, or has found another one that does; False if it died before."""
    ready, ready_end = os.pipe2(os.O_CLOEXEC)
    try:
        with log_path.open("ab") as log_file:
            # It forks and this process ends at once: the zygote needs no parent to reap it.
            subprocess.run(
                [*command, "--ready", str(ready_end)],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd="/",  # the caller's directory must not stay in use
                start_new_session=True,
                pass_fds=[ready_end],
                timeout=_START_DEADLINE_S,
                check=True,
            )
        os.close(ready_end)
        ready_end = -1
        waiter = select.poll()
        waiter.register(ready, select.POLLIN)
        return bool(waiter.poll(_START_DEADLINE_S * 1000)) and os.read(ready, 1) != b""
    except subprocess.SubprocessError:
        return False  # the log says more
    finally:
        os.close(ready)
        if ready_end >= 0:
            os.close(ready_end)


def is_running(socket_path: Path) -> int | None:
    """Return the process id of the zygote that answers at a socket; ``None`` if none does."""
    try:
        caller = ControlClient(socket_path, _CALL_DEADLINE_S)
    except (ChronicleError, OSError):
        return None
    try:
        pid: int = caller.call("ping", _CALL_DEADLINE_S)["pid"]
    except (ChronicleError, OSError):
        return None
    finally:
        caller.close()
    return pid


def is_alive(socket_path: Path) -> bool:
    """Say whether a zygote for a socket exists, as far as this user can tell, even if it does not answer."""
    try:
        lock = os.open(lock_path(socket_path), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        return is_locked(lock)
    finally:
        os.close(lock)


def lock_path(socket_path: Path) -> Path:
    """Return the file that the zygote of a socket keeps locked while it lives."""
    return socket_path.with_name(socket_path.name + ".lock")


def shut_down(socket_path: Path, *, unused: bool = False) -> None:
    """End the zygote at a socket and all its mounts, and return when they are gone. Does nothing if none runs.

    Args:
        unused: only if it has no mounts.

    Raises:
        Unavailable: it did not answer in time.
    """
    try:
        caller = ControlClient(socket_path, _CALL_DEADLINE_S)
    except (Unavailable, OSError):
        return
    try:
        caller.call("shutdown_unused" if unused else "shutdown", _END_DEADLINE_S)
    except ConnectionError:
        return
    except TimeoutError as error:
        raise Unavailable(f"the mount service at {socket_path} does not end; its log says more") from error
    finally:
        caller.close()
