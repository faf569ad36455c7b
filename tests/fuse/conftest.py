"""A zygote for each test that wants one, ended by process id, whatever the test did to it.

Tests that mount run with both transports. A test of what is the same code under both, such as the calls over the
control socket, prefork processes and workspaces that are opened and taken over, or a request on everything that there
may be, is marked ``one_transport``: with the other transport than the default it counts as slow, so only `make nightly`
runs it. Not marked is what each transport does itself: mounting and unmounting, requests and their answers, parked,
deferred and interrupted ones, invalidation.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import availability, mounts
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import FuseWorkspace, list_mounts, open_fuse_workspace
from chronicle.fuse.zygote.launcher import is_running, shut_down
from chronicle.workspace.port import LayerSpec, Opened
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 60


@dataclass(frozen=True, slots=True)
class Node:
    """A node's directories and its running zygote."""

    directory: Path
    process: subprocess.Popen[bytes]
    opened: list[Opened] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.directory / "run" / "zygote.sock"

    @property
    def layers(self) -> Path:
        return self.directory / "layers"

    @property
    def mounts(self) -> Path:
        return self.directory / "mounts"

    def spec(self, name: str = "w", *, epoch: int = 1, turn: int = 1) -> LayerSpec:
        return LayerSpec(workspace_id=name, layers=self.layers, base=None, epoch=epoch, turn=turn)

    def open(self, name: str = "w", *, epoch: int = 1, at: str | None = None, with_caller: bool = True) -> Opened:
        spec, mountpoint = self.spec(name, epoch=epoch), self.mounts / (at or name)
        opened = open_fuse_workspace(self.socket, spec, "memory://", mountpoint, with_caller=with_caller)
        self.opened.append(opened)
        return opened

    def workspace(self, name: str = "w", *, epoch: int = 1, at: str | None = None) -> FuseWorkspace:
        workspace = self.open(name, epoch=epoch, at=at).workspace
        assert isinstance(workspace, FuseWorkspace)
        return workspace


def wait_for_end(pid: int) -> None:
    """Wait until a process that need not be our child has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], DEADLINE_S)[0], f"process {pid} goes on"
    finally:
        os.close(pidfd)


def served(socket: Path) -> list[dict[str, object]]:
    """What a mount service has mounted, as `list_mounts` says, when it knows of each which process serves it.

    A server may be up before its prefork process has told the service its pid. Till then that is 0, by which a
    signal reaches the test's own processes, and a limit the test itself.
    """
    found: list[dict[str, object]] = []

    def known() -> bool:
        found[:] = list_mounts(socket)
        return all(mount["pid"] or mount["state"] == "failed" for mount in found)

    wait_until(known, "not all servers are known")
    return found


def prefork_process_of(service: int, *, after: int = 0) -> int:
    """The process that forks a mount service's servers.

    Args:
        service: the service's process id.
        after: the one before, which was killed: it may be about to end, and then there is none for a moment.
    """

    def only_child() -> int:
        found = [int(child) for child in Path(f"/proc/{service}/task/{service}/children").read_text().split()]
        return found[0] if len(found) == 1 and found[0] != after else 0

    return wait_until(only_child, "no template")


def end_service(socket: Path, directory: Path) -> None:
    """End a mount service, if there is one, and take away what is mounted below a directory."""
    pid = is_running(socket)
    shut_down(socket)
    if pid is not None:
        wait_for_end(pid)
    mounts.unmount_all_under(directory)


def in_a_namespace_of_its_own() -> list[str]:
    """The beginning of a command that runs in a copy of this mount namespace."""
    unshare = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() != 0 else [])]
    # Without "private" an unmount here could be one there too. In a chroot whose root is no mount point it is refused.
    for propagation in ("private", "unchanged"):
        command = [*unshare, "--propagation", propagation]
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if tried.returncode == 0:
            return command
    if os.geteuid() == 0:
        pytest.fail(tried.stderr)
    pytest.skip(f"this user may not make a mount namespace: {tried.stderr.strip()}")


@contextmanager
def running_mirror(
    directory: Path,
    transport: Transport,
    owner: int | None = None,
    request_deadline_s: float | None = None,
    user: int | None = None,
) -> Iterator[Node]:
    """Start `tests.fuse.mirror` and end it and what it mounted."""
    for name in ("run", "layers", "mounts"):
        (directory / name).mkdir(exist_ok=True)
        if user is not None:
            os.chown(directory / name, user, user)
    command = [sys.executable, "-m", "tests.fuse.mirror", "--socket", str(directory / "run" / "zygote.sock")]
    command += ["--mounts", str(directory / "mounts"), "--transport", transport]
    if request_deadline_s is not None:
        command += ["--request-deadline", str(request_deadline_s)]
    if owner is not None:
        command += ["--owner", str(owner)]
    if user is not None:
        # It mounts in a namespace in which the device is everyone's, as it is on most machines.
        of_all = 'mknod "$0" c 10 229 && chmod 666 "$0" && mount --bind "$0" /dev/fuse && exec "$@"'
        command = [*in_a_namespace_of_its_own(), "sh", "-c", of_all, str(directory / "fuse"), *command]
        command += ["--user", str(user)]
    with (
        (directory / "log").open("ab") as log,
        subprocess.Popen(command, stderr=log, start_new_session=True) as process,
    ):
        node = Node(directory, process)

        def answers() -> bool:
            assert process.poll() is None, (directory / "log").read_text()
            return is_running(node.socket) is not None

        try:
            wait_until(answers, "the mirror does not start")
            yield node
        finally:
            for opened in node.opened:
                with suppress(Unavailable):  # the test ended its zygote
                    opened.workspace.close()
            process.terminate()
            process.wait(DEADLINE_S)
            print((directory / "log").read_text())
            mounts.unmount_all_under(directory)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count a test that is marked ``one_transport`` as slow with the other transport than the default."""
    for item in items:
        case: Any = getattr(item, "callspec", None)
        if item.get_closest_marker("one_transport"):
            transport = case.params.get("transport") or case.params["pair"]
            if transport != availability.DEFAULT_TRANSPORT:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", params=availability.TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    """How mounts are served: what mounts anything runs both ways."""
    value: Transport = request.param
    return value


@pytest.fixture
def node(tmp_path: Path, transport: Transport) -> Iterator[Node]:
    with running_mirror(tmp_path, transport) as running:
        yield running
