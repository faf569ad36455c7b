"""Runs a command on one rung: asks a supervisor for it, hands on its output, and puts back what it must not leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from podium.errors import CommandNotStarted, SandboxRefused
from podium.sandbox.bubblewrap import FILES_AT, bubblewrap, wrapped
from podium.sandbox.egress.allow_list import Proxied
from podium.sandbox.egress.listening import PROXY_VARIABLES, interpreter_paths, served, with_listener
from podium.sandbox.egress.outside import Outside
from podium.sandbox.kernel import filter_of_calls
from podium.sandbox.policy import RUNGS, Ended, Policy, Rung
from podium.sandbox.protected import protected
from podium.sandbox.trees import remove

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from podium.sandbox.egress.proxy import Denied, OnDenied

__all__ = ["Stream", "run_on"]

Stream = Literal["stdout", "stderr"]

_CHUNK: Final = 64 << 10
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system/cpu"),
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/crypto-policies"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone", "/etc/mime.types"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf"),
    *("/etc/gai.conf", "/etc/protocols", "/etc/services", "/etc/debian_version", "/etc/os-release"),
)
"""What can be read on every rung, if it is there: programs, libraries, the files of ``/etc`` without secrets."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NO_ANSWER: Final = {"status": -9, "limit": None, "failure": "its supervisor was killed", "left": 0, "again": False}


async def run_on(
    rung: Rung,
    argv: Sequence[str],
    policy: Policy,
    *,
    on_output: Callable[[Stream, bytes], Awaitable[None]],
    on_denied: OnDenied | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    outside: Outside | None = None,
) -> Ended:
    """Do what `podium.sandbox.running.run` does on one rung, which is not probed before; ``outside`` is for tests."""
    if RUNGS.index(rung) < RUNGS.index(policy.needs):
        raise SandboxRefused(f"the policy asks for {policy.needs}, and {rung} is weaker")
    _check_paths(policy)
    tmp = tempfile.mkdtemp(prefix="podium-sandbox-")
    try:
        request = _request(rung, argv, policy, tmp, cwd)
        with protected(policy.writable) as restored:
            async with AsyncExitStack() as stack:
                channel: tuple[socket.socket, ...] = ()
                if isinstance(policy.network, Proxied):
                    proxy = served(policy.network, outside or Outside(), on_denied or _ignore)
                    channel = (await stack.enter_async_context(proxy),)
                request["stdin"] = stack.enter_context(_input(stdin))
                answer = await _supervised(request, channel, policy.limits.output_bytes, on_output)
    finally:
        await _remove(tmp)
    if answer["failure"]:
        raise CommandNotStarted(
            f"{argv[0]} could not be started in the sandbox ({rung}): {answer['failure']}. Its program has to be "
            "readable there: the system's are, others by what the policy declares"
        )
    if answer["left"]:
        raise OSError(f"{answer['left']} processes of {argv[0]} were killed and do not end: does a file system hang?")
    status: int = answer["status"]
    return Ended(128 - status if status < 0 else status, answer["limit"], rung, tuple(restored))


async def _ignore(_: Denied) -> None:
    """For who does not ask what was denied."""


def _check_paths(policy: Policy) -> None:
    for path in policy.writable:
        if not os.path.isdir(path):  # noqa: PTH112  pathlib raises for what this user may not look into
            raise SandboxRefused(f"{path} is to be writable in a sandbox, and is no directory; make it first")
    for path in policy.readable:
        if not os.path.exists(path):  # noqa: PTH110
            raise SandboxRefused(f"{path} is to be readable in a sandbox, and is not there; declare what each node has")
    for path in (*policy.writable, *policy.readable):
        for above in policy.writable:
            if path != above and path.is_relative_to(above):
                within = path.relative_to(above)
                if os.path.realpath(path) != os.path.join(os.path.realpath(above), within):  # noqa: PTH118
                    raise SandboxRefused(f"{path} goes through a link in {above}, where a command may have made it")


def _request(rung: Rung, argv: Sequence[str], policy: Policy, tmp: str, cwd: Path | None) -> dict[str, Any]:
    """Return what a supervisor is asked for: see `podium.sandbox.spawner`."""
    tmp_inside = "/tmp" if rung == "bubblewrap" else tmp  # noqa: S108  its own
    proxied = isinstance(policy.network, Proxied)
    variables = {**(PROXY_VARIABLES if proxied else {}), **policy.environment}
    environment = {"PATH": _PATH, "HOME": tmp_inside, **variables, "TMPDIR": tmp_inside}
    directory = str(cwd or next(iter(policy.writable), tmp_inside))
    program = _program(argv[0], environment["PATH"], directory)
    request: dict[str, Any] = {
        "argv": [*argv],
        "program": program,
        "environment": environment,
        "cwd": directory,
        "limits": asdict(policy.limits),
        "disk": [tmp, *map(str, policy.writable)],
        "confine": None,
        "filter": None,
        "wrapped": rung == "bubblewrap",
        "files": (),
    }
    if rung != "none":
        request["filter"] = _filter(internet=policy.network == "open", namespaced=rung == "bubblewrap")
    if rung == "landlock":
        request["confine"] = {
            "directories": [*_directories(), "/proc"],
            "readable": [*_files(), *map(str, policy.readable)],
            "writable": [tmp, *map(str, policy.writable)],
            "devices": _DEVICES,
            "tcp": policy.network == "open",
        }
    elif rung == "bubblewrap":
        command, system = [program, *argv[1:]], _directories()
        if proxied:
            command, system = with_listener(command), (*system, *interpreter_paths(system))
        request["argv"] = wrapped(command, policy, system=system, files=_files(), tmp=tmp, cwd=directory)
        request["files"] = [*enumerate(_files(), FILES_AT)]
        request["program"] = bubblewrap()
        request["cwd"] = "/"
    return request


@contextlib.contextmanager
def _input(data: bytes) -> Iterator[str]:
    """Make a file of what a command reads, outside of its sandbox; without anything, name one that is empty."""
    if not data:
        yield os.devnull
        return
    with tempfile.NamedTemporaryFile(prefix="podium-stdin-") as file:
        file.write(data)
        file.flush()
        yield file.name


@cache
def _directories() -> tuple[str, ...]:
    """Return the directories of the system that are there."""
    return tuple(filter(os.path.isdir, _SYSTEM))


@cache
def _files() -> tuple[str, ...]:
    """Return the files of the system that are there, and that this user may read."""
    return tuple(each for each in _SYSTEM if os.path.isfile(each) and os.access(each, os.R_OK))  # noqa: PTH113


@cache
def _filter(*, internet: bool, namespaced: bool) -> str:
    """Return the filter of system calls of a rung.

    There are no Unix sockets: nothing here can say which ones a process may connect to (docker.sock, podium's own). No
    namespace has AF_VSOCK, the way to a hypervisor. Of bubblewrap's network ``none`` there is the loopback interface.
    """
    families = (socket.AF_INET, socket.AF_INET6) if internet or namespaced else ()
    return filter_of_calls(families, namespaced=namespaced).hex()


def _program(name: str, path: str, directory: str) -> str:
    found = shutil.which(name, path=path) if "/" not in name else os.path.join(directory, name)  # noqa: PTH118
    if found is None or not Path(found).is_file():
        where = "" if "/" in name else f" in {path}; give its path, or a PATH that has it"
        raise CommandNotStarted(f"there is no program {name}{where}")
    return found


async def _supervised(
    request: dict[str, Any],
    channel: Sequence[socket.socket],
    most: int,
    on_output: Callable[[Stream, bytes], Awaitable[None]],
) -> dict[str, Any]:
    """Run what was asked for, and return the answer of its supervisor.

    One that waited may have been killed meanwhile. The kernel tells when it had not read all of the request: nothing
    has run then, and a new one is asked.
    """
    # Imported here: only what runs a command has a spawner.
    from podium.sandbox import spawning  # noqa: PLC0415

    line = json.dumps(request).encode() + b"\n"
    for take in (spawning.take_supervisor, spawning.new_supervisor):
        control, again = take(), False
        try:
            answer, again = await _asked(control, line, channel, most, on_output)
        finally:
            (spawning.give_back if again else spawning.close)(control)
        if answer is not None:
            return answer
    return _NO_ANSWER


async def _asked(
    control: socket.socket,
    line: bytes,
    channel: Sequence[socket.socket],
    most: int,
    on_output: Callable[[Stream, bytes], Awaitable[None]],
) -> tuple[dict[str, Any] | None, bool]:
    """Ask one supervisor; return its answer, ``None`` if it ended before it had read this, and whether it can go on."""
    streams: dict[int, Stream] = {}
    with contextlib.ExitStack() as closed_at_end, contextlib.ExitStack() as closed_when_sent:
        theirs = []
        for name in ("stdout", "stderr"):
            reading, writing = os.pipe()
            closed_at_end.callback(os.close, reading)
            closed_when_sent.callback(os.close, writing)
            theirs.append(writing)
            streams[reading] = name
            os.set_blocking(reading, False)
        try:
            sent = socket.send_fds(control, [line], [*theirs, *(each.fileno() for each in channel)])
        except ConnectionError:
            return None, False
        closed_when_sent.close()
        try:
            try:
                await asyncio.get_running_loop().sock_sendall(control, line[sent:])
            except ConnectionError:
                return None, False
            stopped = await _deliver(streams, control, most, on_output)
            received = await _answer(control)
        except BaseException:
            with contextlib.suppress(OSError):  # it has ended
                control.shutdown(socket.SHUT_WR)
            await _until_ended(control)
            raise
    if received is None and not stopped:  # else what it had not read is that there was too much
        return None, False
    answer: dict[str, Any] = json.loads(received) if received else _NO_ANSWER
    return answer, answer["again"] and not stopped


async def _deliver(
    streams: dict[int, Stream], control: socket.socket, most: int, on_output: Callable[[Stream, bytes], Awaitable[None]]
) -> bool:
    """Hand on what comes until both streams are closed; what is too much ends the command, and is dropped.

    Return whether it was too much.
    """
    room = most
    while streams:
        for reading in await _readable(streams):
            piece = os.read(reading, _CHUNK)
            if not piece:
                del streams[reading]
                continue
            if len(piece) > room >= 0:
                with contextlib.suppress(OSError):  # it has ended
                    control.send(b"output")
            if room > 0:
                await on_output(streams[reading], piece[:room])
            room -= len(piece)
    return room < 0


async def _readable(descriptors: Iterable[int]) -> list[int]:
    """Wait until some of them can be read, and return those; nothing watches them afterwards."""
    loop, ready, waiter = asyncio.get_running_loop(), list[int](), asyncio.Event()

    def note(descriptor: int) -> None:
        loop.remove_reader(descriptor)
        ready.append(descriptor)
        waiter.set()

    watched = [*descriptors]
    for each in watched:
        loop.add_reader(each, note, each)
    try:
        await waiter.wait()
    finally:
        for each in watched:
            loop.remove_reader(each)
    return ready


async def _answer(control: socket.socket) -> bytes | None:
    """Return the line that says how the command ended.

    It is empty if the supervisor was killed, and ``None`` if that has left unread what it had been sent.
    """
    received = b""
    while not received.endswith(b"\n"):
        try:
            piece = await asyncio.get_running_loop().sock_recv(control, _CHUNK)
        except ConnectionError:
            return None
        if not piece:
            return b""
        received += piece
    return received


async def _until_ended(control: socket.socket) -> None:
    """Wait for a supervisor that was told to end its command, also through cancellations: it has a deadline."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await _answer(control)
            return


async def _remove(tmp: str) -> None:
    try:
        os.rmdir(tmp)  # noqa: PTH106
    except OSError:  # not empty
        await asyncio.to_thread(remove, tmp)
