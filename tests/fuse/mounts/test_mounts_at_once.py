"""Commands of one store that come while it is being mounted or unmounted: one's step between two steps of the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from chronicle.control.messages import Ended
from chronicle.errors import ChronicleError, Conflict, InvalidInput, MountInUse, NotFound, Unavailable
from chronicle.fuse.mountpoints import mountinfo, mounts
from chronicle.fuse.server import client
from chronicle.fuse.server.client import list_mounts, open_fuse_workspace, unmount_workspace
from chronicle.fuse.zygote import launcher
from chronicle.repository import Repository, maintenance
from chronicle.repository import mounts as mounting
from chronicle.workspace.port import LayerSpec, Opened
from tests.fuse.conftest import DEADLINE_S, end_service, served, wait_for_end
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).parents[3]
UNUSED = """
import sys
from pathlib import Path
from chronicle.fuse.server import server
from chronicle.fuse.zygote import supervisor
from chronicle.fuse.mountpoints.availability import DEFAULT_TRANSPORT
from chronicle.fuse.transport.choice import import_transport
from tests.fuse.mirror import open_mirror
import_transport(DEFAULT_TRANSPORT)
supervisor.UNUSED_S = float(sys.argv[2])
server._LAST_CLAIM_S = 600.0  # a server that waits is killed after some seconds, with a warning
run = Path(sys.argv[1])
supervisor.Zygote(run / "zygote.sock", run / "mounts", open_mirror, until_idle=True, request_deadline_s=2.0).run()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    repository = Repository(tmp_path / "store")
    repository.create()
    yield repository
    end_service(repository.socket, tmp_path)


def end(repository: Repository, mountpoint: Path) -> None:
    """Unmount the last mount as another command does, and wait until its service has ended."""
    pid = launcher.is_running(repository.socket)
    assert pid is not None
    unmount_workspace(repository.socket, mountpoint)
    wait_for_end(pid)


def before_first_call(function: Callable[..., object], meanwhile: Callable[[], None]) -> Callable[..., object]:
    """A function that lets something happen right before its first call."""
    waiting = [meanwhile]

    def called(*arguments: object, **options: object) -> object:
        if waiting:
            waiting.pop()()
        return function(*arguments, **options)

    return called


def test_a_mount_that_had_to_wait_takes_no_mountpoint_from_another_workspace(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "mnt"
    told: list[str] = []
    looked = threading.Event()

    def mount_second() -> None:
        try:
            mounting.mount(Repository(repository.directory), "second", at, with_caller=False)
        except ChronicleError as error:
            told.append(f"{type(error).__name__}: {error}")

    # A mount that is kept, so that the service goes on.
    mounting.mount(repository, "kept", tmp_path / "kept", with_caller=False)
    waits = threading.Thread(target=mount_second)
    with repository.workspace_lock("second"):
        with monkeypatch.context() as patch:
            patch.setattr(Repository, "workspace_lock", before_first_call(Repository.workspace_lock, looked.set))
            waits.start()
            assert looked.wait(DEADLINE_S)  # at the mountpoint, and waits from now on
        mounting.mount(repository, "first", at, with_caller=False)
        with (at / "file").open("w") as file:
            file.write("still here")
    waits.join(DEADLINE_S)
    assert told == [
        f"Conflict: workspace 'first' is mounted at {at} already; unmount it first or name another directory"
    ]
    assert (at / "file").read_text() == "still here"


def test_a_command_that_meets_a_service_at_its_end_uses_the_workspace_itself(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turn, (module, call) in enumerate(
        [(mounting, "attach_fuse_workspace"), (client, "list_mounts"), (client, "ControlClient")], 1
    ):
        root = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
        (root / "file").write_text(f"of turn {turn}")
        real = getattr(module, call)
        with monkeypatch.context() as patch:
            patch.setattr(module, call, before_first_call(real, partial(end, repository, root)))
            committed = repository.commit("main", "while it is unmounted")
        assert committed is not None
        assert committed.turn == turn


def test_a_command_waits_for_a_mount_that_ends_between_two_questions(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service goes on with another mount, so that only the workspace's own socket is gone."""
    mounting.mount(repository, "kept", tmp_path / "kept", with_caller=False)
    root = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
    (root / "file").write_text("one")
    ends = [root]

    def list_and_unmount(socket: Path) -> list[dict[str, object]]:
        found = list_mounts(socket)
        while ends:
            unmount_workspace(socket, ends.pop())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(client, "list_mounts", list_and_unmount)
        assert repository.commit("main", "while it is unmounted") is not None


def test_a_mount_whose_order_meets_the_end_of_the_service_starts_it_again(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mounting.mount(repository, "first", tmp_path / "first", with_caller=False)
    with monkeypatch.context() as patch:
        order = before_first_call(open_fuse_workspace, lambda: end(repository, first))
        patch.setattr(mounting, "open_fuse_workspace", order)
        second = mounting.mount(repository, "second", tmp_path / "second", with_caller=False)
    (second / "file").write_text("there")
    assert [mount["workspace_id"] for mount in list_mounts(repository.socket)] == ["second"]


def test_a_mount_whose_order_met_the_end_of_a_service_is_ordered_of_the_one_that_another_command_started(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mounting.mount(repository, "first", tmp_path / "first", with_caller=False)
    ending = [first]

    def order(*arguments: Any, **named: Any) -> Opened:
        while ending:
            end(repository, ending.pop())
            mounting.mount(repository, "third", tmp_path / "third", with_caller=False)
            raise Ended("the mount service is ending")
        return open_fuse_workspace(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(mounting, "open_fuse_workspace", order)
        mounting.mount(repository, "second", tmp_path / "second", with_caller=False)
    assert {mount["workspace_id"] for mount in list_mounts(repository.socket)} == {"second", "third"}


def test_a_mount_waits_for_a_service_that_still_closes_its_mounts(repository: Repository, tmp_path: Path) -> None:
    mounting.mount(repository, "first", tmp_path / "first", with_caller=False)
    service = launcher.is_running(repository.socket)
    (mount,) = served(repository.socket)
    assert isinstance(mount["pid"], int)
    os.kill(mount["pid"], signal.SIGSTOP)  # it is killed after some seconds
    ends = threading.Thread(target=launcher.shut_down, args=(repository.socket,))
    ends.start()
    with suppress(Unavailable):  # it has ended already
        wait_until(lambda: all(mount["state"] == "ending" for mount in list_mounts(repository.socket)))
    second = mounting.mount(repository, "second", tmp_path / "second", with_caller=False)
    ends.join(DEADLINE_S)
    (second / "file").write_text("there")
    assert launcher.is_running(repository.socket) != service


def test_who_unmounts_second_is_told_that_nothing_is_mounted(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
    for step in ("unmount_workspace", "list_mounts"):
        with monkeypatch.context() as patch:
            real = getattr(mounting, step)
            patch.setattr(mounting, step, before_first_call(real, lambda: end(repository, root)))
            with pytest.raises(NotFound, match=f"nothing of .* is mounted at {root}"):
                mounting.unmount(repository, root)
        mounting.mount(repository, "main", root, with_caller=False)


def test_unmounting_waits_for_a_commit(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
    (root / "file").write_text("one")
    unmounts = threading.Thread(target=mounting.unmount, args=(Repository(repository.directory), root))

    def unmount() -> None:
        unmounts.start()
        unmounts.join(0.5)  # time enough to come between, if it does not wait

    with monkeypatch.context() as patch:
        patch.setattr(client.FuseWorkspace, "seal", before_first_call(client.FuseWorkspace.seal, unmount))
        assert repository.commit("main", "not hindered") is not None
    unmounts.join(DEADLINE_S)
    assert not mountinfo.is_mounted(root)


@contextmanager
def unused_service(run: Path, unused_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run a zygote that ends if nothing is mounted for so long."""
    (run / "mounts").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", UNUSED, str(run), str(unused_s)]
    with subprocess.Popen(command, cwd=CHECKOUT, stderr=subprocess.PIPE) as service:
        try:
            yield service
        finally:
            service.terminate()
            service.wait(DEADLINE_S)


def test_a_service_to_which_no_mount_ever_came_ends(repository: Repository) -> None:
    """The process that started it was killed before its order."""
    with repository.used("main"):
        pass
    with unused_service(repository.socket.parent, 0.2) as service:
        assert service.wait(DEADLINE_S) == 0
    assert not launcher.is_alive(repository.socket)
    maintenance.collect_garbage(repository, alone=True)


def test_a_service_does_not_end_over_its_first_mount(tmp_path: Path) -> None:
    socket = tmp_path / "run" / "zygote.sock"
    spec = LayerSpec("stuck", tmp_path / "layers", None, 1, 1)  # its first server hangs, for two seconds
    opened: Opened | None = None
    while opened is None:
        with unused_service(socket.parent, 1.0) as service:
            while launcher.is_running(socket) is None and service.poll() is None:
                pass
            try:
                opened = open_fuse_workspace(socket, spec, "memory://", tmp_path / "mnt")
            except Ended:  # this process was too slow: the order did not come within the second
                assert not (tmp_path / "layers").exists(), "it had begun"
                continue
            assert opened.workspace.root.is_mount()
            assert service.poll() is None
            opened.workspace.close()
            assert service.wait(DEADLINE_S) == 0, "it ends with its last mount"


def test_a_server_that_is_closed_in_order_waits_for_nobody(tmp_path: Path) -> None:
    """Its zygote has the mountpoint, and unmounts it."""
    socket = tmp_path / "run" / "zygote.sock"
    with unused_service(socket.parent, 60.0) as service:
        while launcher.is_running(socket) is None:
            assert service.poll() is None
        opened = open_fuse_workspace(socket, LayerSpec("w", tmp_path / "layers", None, 1, 1), "", tmp_path / "mnt")
        opened.workspace.close()
        assert service.wait(DEADLINE_S) == 0
        assert service.stderr is not None
        assert b"did not end" not in service.stderr.read()


def test_a_mount_that_fails_ends_no_service_that_others_use(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command's order comes right before it would have the service ended."""

    def mount_other() -> None:
        patch.undo()
        mounting.mount(repository, "other", tmp_path / "other", with_caller=False)

    crowded = tmp_path / "crowded"
    crowded.mkdir()
    (crowded / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "shut_down", before_first_call(launcher.shut_down, mount_other))
        patch.setattr(mounts, "check_mountpoint", lambda _: None)
        with pytest.raises(InvalidInput, match="not empty"):
            mounting.mount(repository, "main", crowded, with_caller=False)
    assert [mount["workspace_id"] for mount in list_mounts(repository.socket)] == ["other"]


def test_a_mountpoint_is_of_one_store_alone(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second store's mount has looked at the mountpoint before the first one's is there."""
    at = tmp_path / "mnt"
    other = Repository(tmp_path / "other")
    try:
        with monkeypatch.context() as patch:

            def mount_first() -> None:
                patch.undo()
                mounting.mount(repository, "first", at, with_caller=False)

            patch.setattr(mounting, "open_fuse_workspace", before_first_call(open_fuse_workspace, mount_first))
            with pytest.raises(Conflict, match=f"another process has mounted something at {at}"):
                mounting.mount(other, "second", at, with_caller=False)
    finally:
        launcher.shut_down(other.socket)
    (at / "file").write_text("still here")
    assert [mount["workspace_id"] for mount in list_mounts(repository.socket)] == ["first"]
    mounting.unmount(repository, at)
    assert list(at.iterdir()) == []
    mounting.mount(other, "second", at, with_caller=False)
    service = launcher.is_running(other.socket)
    assert service is not None
    end(other, at)


STEPS = {
    "is_mounted": (mountinfo, "is_mounted"),
    "claim": (mounting, "claim_mountpoint"),
    "unmount": (mounts, "unmount"),
}


@pytest.mark.parametrize("step", STEPS)
def test_what_clears_away_a_dead_mount_takes_no_new_one_with_it(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Another command clears it away as well, and mounts, if it can, before a step of this one."""
    root = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
    kill_all(repository)
    assert mountinfo.is_mounted(root)
    with ExitStack() as stack:
        used: list[TextIO] = []

        def mount_first() -> None:
            patch.undo()
            with suppress(Conflict):
                mounting.mount(repository, "main", root, with_caller=False)
                used.append(stack.enter_context((root / "file").open("w")))

        with monkeypatch.context() as patch:
            module, name = STEPS[step]
            patch.setattr(module, name, before_first_call(getattr(module, name), mount_first))
            with suppress(Conflict):
                mounting.mount(repository, "main", root, with_caller=False)
        for file in used:
            file.write("still here")
            file.flush()
        assert bool(used) == (step != "unmount")
    (root / "other").touch()
    assert len(list_mounts(repository.socket)) == 1


def kill_all(repository: Repository) -> None:
    """Kill the mount service and its servers at once, so that nobody is left to unmount."""
    pid = launcher.is_running(repository.socket)
    assert pid is not None
    group = os.getpgid(pid)
    assert group != os.getpgrp()
    os.killpg(group, signal.SIGKILL)
    wait_for_end(pid)


def test_a_server_whose_service_was_killed_takes_no_mount_of_another_with_it(
    repository: Repository, tmp_path: Path
) -> None:
    """It takes long to close its layer, and unmounts only then."""
    at = mounting.mount(repository, "first", tmp_path / "mnt", with_caller=False)
    (mount,) = served(repository.socket)
    server, service = mount["pid"], launcher.is_running(repository.socket)
    assert isinstance(server, int)
    assert service is not None
    os.kill(server, signal.SIGSTOP)
    os.kill(service, signal.SIGKILL)
    wait_for_end(service)
    mounting.mount(repository, "second", at, with_caller=False)
    (at / "file").write_text("still here")
    os.kill(server, signal.SIGCONT)
    wait_for_end(server)
    assert (at / "file").read_text() == "still here"
    assert [mount["state"] for mount in list_mounts(repository.socket)] == ["up"]


def test_a_mount_whose_store_was_moved_is_unmounted_by_force(repository: Repository, tmp_path: Path) -> None:
    at = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
    moved = tmp_path / "moved"
    repository.directory.rename(moved)
    with pytest.raises(MountInUse, match="another process"):  # the command's hint names --force
        mounting.unmount(repository, at)
    assert mountinfo.is_mounted(at)
    mounting.unmount(repository, at, force=True)
    assert not mountinfo.is_mounted(at)
    moved.rename(repository.directory)


def test_who_waited_to_unmount_unmounts_what_is_mounted_then(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the commands that use the workspace which it takes away."""
    at = mounting.mount(repository, "main", tmp_path / "mnt", with_caller=False)
    waited_for: list[str] = []
    queue = Repository.workspace_lock

    def queue_later(place: Repository, workspace: str) -> AbstractContextManager[None]:
        if not waited_for:
            waited_for.append(workspace)
            mounting.unmount(repository, at)
            mounting.mount(repository, "second", at, with_caller=False)
            waited_for[1:] = []
        else:
            waited_for.append(workspace)
        return queue(place, workspace)

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "workspace_lock", queue_later)
        mounting.unmount(repository, at)
    assert waited_for == ["main", "second"]
    assert not mountinfo.is_mounted(at)
