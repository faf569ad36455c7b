"""The zygote: a warm process from which a node's mount servers are forked.

Starting a mount server afresh takes 170 ms and 18 MB, most of it imports; forking one from a process that has imported
everything takes a few milliseconds and shares its memory. The zygote is started by exec, in a session of its own, with
one thread, so that a fork is always safe and no user code or Ray is ever in it. What it does is in
`chronicle.fuse.zygote.supervisor`; here is how it is started and ended, for which nothing of a server is imported.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import logging
import os
import resource
import select
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from chronicle.errors import ChronicleError, Conflict, InvalidInput, Unavailable
from chronicle.fuse.control import Caller
from chronicle.fuse.mountpoints.mounts import DEFAULT_TRANSPORT, TRANSPORTS, Transport

__all__ = ["is_alive", "is_running", "lock_path", "main", "shut_down", "start"]

_START_DEADLINE_S: Final = 30.0
"""For the imports, on a busy machine; usually half a second."""
_OTHER_DEADLINE_S: Final = 10.0
"""For another zygote that was started at the same time to listen; usually a twentieth of a second. One that was stopped
is asked once."""
_OTHER_POLL_S: Final = 0.01
_CALL_DEADLINE_S: Final = 10.0
_END_DEADLINE_S: Final = 20.0
"""Longer than the zygote waits for a server before it kills it."""
_REHEARSALS: Final = 10
"""For a node's zygote. One that ends with its last mount will hardly have more than one."""
_BOOTSTRAP: Final = (
    "'chronicle mount service'; import os, sys; fd = os.open('/proc/self/comm', os.O_WRONLY); "
    "os.write(fd, b'chronicle mount'); os.close(fd); "
    "sys.path.append({package!r}); from chronicle.fuse.zygote.zygote import main; sys.exit(main(sys.argv[1:]))"
)
"""What ``-m chronicle.fuse.zygote.zygote`` does, but finds this very package, and no module of the caller's directory:
there could be a ``logging.py`` in it. It begins with what ``ps`` is to show, and the name is what ``top`` shows, of
servers, too. A title that is written after the imports cost each of them 30 to 60 KiB of its 3.8 MiB."""


def start(
    socket_path: Path,
    mounts_dir: Path,
    log_path: Path,
    owner_pid: int | None = None,
    *,
    transport: Transport = DEFAULT_TRANSPORT,
    request_deadline_s: float | None = None,
    until_idle: bool = False,
    blobs_url: str = "",
) -> int:
    """Start a zygote in a session of its own, or find the one that runs there already, and return its process id.

    Args:
        socket_path: where it will listen; the directory is made, for this user only.
        mounts_dir: below it are this node's mountpoints. Each home has its own.
        log_path: where it writes what happens to it and its servers, a line each.
        owner_pid: it ends, with all its mounts, when this process does; ``None``: when told to.
        transport: how its servers speak to the kernel; one that runs already keeps its own.
        request_deadline_s: a server that does not get on with a request for so long is replaced; default a minute.
        until_idle: it ends when its last mount is gone, or if none comes within some seconds.
        blobs_url: a blob store of its mounts: what reaching it needs is loaded once, and not by each server.

    Raises:
        Unavailable: it did not come up; the message has the end of its log.
    """
    for directory in (socket_path.parent, mounts_dir, log_path.parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    package = os.fspath(Path(__file__).absolute().parents[2])
    command = [sys.executable, "-P", "-c", _BOOTSTRAP.format(package=package)]
    command += ["--socket", os.fspath(socket_path.absolute()), "--mounts", os.fspath(mounts_dir.absolute())]
    command += ["--transport", transport]
    if request_deadline_s is not None:
        command += ["--request-deadline", str(request_deadline_s)]
    if owner_pid is not None:
        command += ["--owner", str(owner_pid)]
    if until_idle:
        command += ["--until-idle"]
    protocol = blobs_url.partition("://")[0]
    if protocol not in ("", "file", "memory"):
        command += ["--preload", protocol]
    until = time.monotonic() + _START_DEADLINE_S
    while True:
        running = is_running(socket_path)
        if running is not None:
            return running
        # Once more if there was one by then, but it ended with its last mount before it was asked.
        if time.monotonic() > until or not _listens(command, log_path):
            break
    tail = log_path.read_text(errors="replace").splitlines()[-3:]
    raise Unavailable(f"the mount service did not start; {log_path} ends with: {' / '.join(tail)}")


def _listens(command: list[str], log_path: Path) -> bool:
    """Start a zygote, and return when it listens, or has found another one that does; False if it died before."""
    ready, told = os.pipe2(os.O_CLOEXEC)
    try:
        with log_path.open("ab") as log_file:
            # It forks and this process ends at once: nobody has to wait for the zygote's end.
            subprocess.run(
                [*command, "--ready", str(told)],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd="/",  # it must not keep the caller's directory in use
                start_new_session=True,
                pass_fds=[told],
                timeout=_START_DEADLINE_S,
                check=True,
            )
        os.close(told)
        told = -1
        waiter = select.poll()
        waiter.register(ready, select.POLLIN)
        return bool(waiter.poll(_START_DEADLINE_S * 1000)) and os.read(ready, 1) != b""
    except subprocess.SubprocessError:
        return False  # the log says more
    finally:
        os.close(ready)
        if told >= 0:
            os.close(told)


def is_running(socket_path: Path) -> int | None:
    """Return the process id of the zygote that answers at a socket; ``None`` if none does."""
    try:
        caller = Caller(socket_path, _CALL_DEADLINE_S)
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
    """Say whether there is a zygote for a socket that this user may know of, even if it does not answer."""
    try:
        lock = os.open(lock_path(socket_path), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        fcntl.flock(lock, fcntl.LOCK_UN)  # closing leaves it to a child that was forked meanwhile
        return False
    finally:
        os.close(lock)


def lock_path(socket_path: Path) -> Path:
    """Return the file that the zygote of a socket has locked for as long as it lives."""
    return socket_path.with_name(socket_path.name + ".lock")


def shut_down(socket_path: Path, *, unused: bool = False) -> None:
    """End the zygote at a socket and all its mounts, and return when they are gone. Nothing to do if none runs.

    Args:
        unused: only if it has no mounts.

    Raises:
        Unavailable: it did not answer in time.
    """
    try:
        caller = Caller(socket_path, _CALL_DEADLINE_S)
    except (Unavailable, OSError):
        return
    try:
        caller.call("shutdown_unused" if unused else "shutdown", _END_DEADLINE_S)
    except (ConnectionError, InvalidInput):  # an older one knows only `shutdown`, and its other mounts are to stay
        return
    except TimeoutError as error:
        raise Unavailable(f"the mount service at {socket_path} does not end; its log says more") from error
    finally:
        caller.close()


def main(arguments: list[str]) -> int:
    """Be a zygote: ``python -m chronicle.fuse.zygote.zygote --socket PATH --mounts DIR [--owner PID] [--ready FD]``."""
    parser = argparse.ArgumentParser(
        prog="chronicle.fuse.zygote.zygote", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--mounts", type=Path, required=True, help="the directory of this node's mountpoints")
    parser.add_argument("--owner", type=int, help="the process to end with")
    parser.add_argument("--transport", choices=TRANSPORTS, default=DEFAULT_TRANSPORT, help="how mounts are served")
    parser.add_argument("--request-deadline", type=float, help="seconds until a server that hangs is replaced")
    parser.add_argument("--preload", help="the protocol of a blob store beyond a network")
    parser.add_argument("--until-idle", action="store_true", help="end with the last mount")
    parser.add_argument("--ready", type=int, help="go to the background, and write to this descriptor when it listens")
    options = parser.parse_args(arguments)
    if options.ready is not None and os.fork() > 0:
        os._exit(0)
    # A server has a descriptor for each file that is open in its mount, in however many programs, and each program has
    # the limit for itself.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
    # Only the zygote itself needs the code of the servers.
    from chronicle.fuse.server.opening import open_served  # noqa: PLC0415
    from chronicle.fuse.transport.choice import import_transport  # noqa: PLC0415
    from chronicle.fuse.zygote.supervisor import REQUEST_DEADLINE_S, Zygote  # noqa: PLC0415
    from chronicle.fuse.zygote.warmup import rehearse  # noqa: PLC0415

    import_transport(options.transport)
    if options.preload is not None:
        from chronicle.blobs.media.fsspec_objects import preload  # noqa: PLC0415 - 40 MB, for who needs it

        preload(options.preload)
    deadline_s = options.request_deadline or REQUEST_DEADLINE_S
    opener = partial(open_served, deadline_s=deadline_s / 2)

    def prepare() -> None:
        rehearse(opener, options.transport, options.mounts, times=1 if options.until_idle else _REHEARSALS)
        # What is imported by now is never collected: a collection would write into each page and unshare it.
        gc.collect()
        gc.freeze()

    zygote: Zygote | None = None
    until = time.monotonic() + _OTHER_DEADLINE_S
    while zygote is None:
        try:
            zygote = Zygote(
                options.socket,
                options.mounts,
                opener,
                options.owner,
                transport=options.transport,
                request_deadline_s=deadline_s,
                until_idle=options.until_idle,
                prepare=prepare,
            )
        except Conflict:  # another one was started at the same time, and will listen; or somebody asked if one lives
            if is_running(options.socket) is not None:
                break
            if time.monotonic() > until:
                return 1  # nobody is told that one listens
            time.sleep(_OTHER_POLL_S)
    if options.ready is not None:
        os.write(options.ready, b".")
        os.close(options.ready)
    if zygote is not None:
        zygote.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
