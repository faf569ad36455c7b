"""A process that uses a store by real mounts while garbage is collected in it, and servers and collections are killed.

    python -m tests.fuse.gc_mount_work write|read|fork|elsewhere|collect DIRECTORY GRACE

* ``write`` changes files in the mount of ``main`` and commits them; the processes that commit are killed at times;
* ``read`` reads old turns and old versions in that mount;
* ``fork`` forks any commit, mounts the fork beside the others, goes on there, and commits or rolls back;
* ``elsewhere`` does so on a node of its own: with another zygote, other layers, and nothing of the contents;
* ``collect`` collects with a grace of so many seconds, again and again, and kills itself in the middle of it at times.

All go on until there is a file ``stop``, and say what they have done (`tell`). What a commit must hold is written down
before it is made (`Records`); a reader of the commit compares. Nobody minds that a mount is away for the moment.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import random
import signal
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.errors import NotFound, Unavailable
from chronicle.fuse.server.client import FuseWorkspace, attach_fuse_workspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.repository import Repository, commit_writer, mounts
from chronicle.repository.commit_log import session_of
from chronicle.repository.maintenance import _reached
from chronicle.workspace.port import LayerSpec
from tests.crash.blobs.gc_work import body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.repository.commit_log import Committed

T = TypeVar("T")
Files = dict[str, str]
"""Path → the seed of what is in it."""

DEADLINE_S = 60
"""For a mount to come back."""
AWAY = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.EACCES})
"""What is said of a mount whose server was killed, and of its files that were open."""
MERGE_FROM = 3
MAIN = "main"
TURNS_FORKED = 12
"""Of the last so many; reading all of them costs more with each."""


def store_of(directory: Path) -> Repository:
    return Repository(directory / "store")


def main_mount(directory: Path) -> Path:
    return directory / "mounts" / MAIN


def socket_elsewhere(directory: Path) -> Path:
    return directory / "elsewhere" / "zygote.sock"


def tell(directory: Path, role: str, **numbers: float) -> None:
    """Say what was done just now."""
    with (directory / f"told-{role}").open("a") as file:
        file.write(json.dumps(numbers) + "\n")


def lines_of(path: Path) -> Iterator[Any]:
    """Yield what is in a file that is being written."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def kill_in_the_middle(act: Callable[[], object], after_s: float) -> int:
    """Have a process do something, and kill it after a while; return its exit code: 0 if it was done before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Records:
    """What each commit must hold; each process adds to a file of its own and reads all of them."""

    def __init__(self, directory: Path, name: str = "") -> None:
        self._directory = directory / "records"
        self._directory.mkdir(exist_ok=True)
        self._name = name

    def note(self, workspace: str, turn: int, files: Files) -> None:
        """Say what a commit holds that may be made from now on."""
        with (self._directory / self._name).open("a") as file:
            file.write(json.dumps([workspace, turn, files]) + "\n")

    def read(self) -> dict[tuple[str, int], Files]:
        found = {}
        for path in self._directory.iterdir():
            for workspace, turn, files in lines_of(path):
                found[workspace, turn] = files
        return found


def patiently(act: Callable[[], T]) -> T:
    """Do it until the mount is there, and nobody writes to the journal while it is read."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return act()
        except (OSError, Unavailable) as error:
            if not isinstance(error, Unavailable) and error.errno not in AWAY:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def compare(root: Path, files: Files, where: str) -> None:
    """See that a directory holds what it should, and nothing else."""

    def look() -> None:
        # Not by walking: that takes a directory that cannot be read for an empty one.
        names = sorted(os.listdir(root))  # noqa: PTH208 - its errors are those of the call
        assert names == sorted(files), f"{where} has {names}, not {sorted(files)}"
        for path, seed in files.items():
            found = (root / path).read_bytes()
            assert found == body(seed), f"{path} of {where} is not {seed}: {found[:40]!r}..., {len(found)} bytes"

    patiently(look)


class Worker:
    def __init__(self, role: str, directory: Path) -> None:
        self.role = role
        self.directory = directory
        self.repository = store_of(directory)
        self.records = Records(directory, role)
        self.random = random.Random(role)
        self.done = 0

    def goes_on(self) -> bool:
        return not (self.directory / "stop").exists()

    def did(self) -> None:
        self.done += 1
        tell(self.directory, self.role, done=1)

    def change(self, root: Path, files: Files, turn: int) -> None:
        """Write what only this one has, and what others write too, at the same time or long before."""
        for number in range(self.random.randrange(1, 5)):
            seed = self.random.choice([f"{self.role} {turn} {number}", f"common {turn % 7} {number}", f"round {turn}"])
            self.put(root, files, f"file{self.random.randrange(20)}", seed)
        if turn % 5 == 0 and files:
            path = self.random.choice(sorted(files))
            del files[path]
            patiently(lambda: (root / path).unlink(missing_ok=True))

    @staticmethod
    def put(root: Path, files: Files, path: str, seed: str) -> None:
        patiently(lambda: (root / path).write_bytes(body(seed)))
        files[path] = seed

    def commit(self, workspace: str, turn: int) -> None:
        """Commit, and see that it is that turn, however often its process or the mount died."""

        def commit() -> None:
            if self.commits_of(workspace) < turn:
                self.repository.commit(workspace, "changed")

        with self.timed():
            if self.random.randrange(3) == 0:
                kill_in_the_middle(commit, self.random.uniform(0, 0.04))
            patiently(commit)
        assert self.commits_of(workspace) == turn

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Tell how long a commit took, also one that failed: the longer the grace, the less of it can be collected."""
        begun = time.monotonic()
        try:
            yield
        finally:
            tell(self.directory, self.role, commit_s=time.monotonic() - begun)

    def commits_of(self, workspace: str) -> int:
        return len(patiently(lambda: self.repository.commits(workspace)))

    # -- in the mount that all share ------------------------------------------------------------------------------

    def write(self) -> None:
        root, files, turn = main_mount(self.directory), Files(), 0
        while self.goes_on():
            turn += 1
            self.change(root, files, turn)
            self.put(root, files, "turn", f"turn {turn}")
            compare(root, files, "what is written")
            self.records.note(MAIN, turn, files)
            self.commit(MAIN, turn)
            self.did()

    def read(self) -> None:
        root = main_mount(self.directory) / ".chronicle"
        while self.goes_on():
            turns = self.commits_of(MAIN)
            if turns == 0:
                time.sleep(0.01)
                continue
            told = len(patiently(lambda: os.listdir(root / "turn"))) - 1  # noqa: PTH208 - as in `compare`
            assert told >= turns - 1, "of the last commit the mount may hear with the next one, of others it has heard"
            if told == 0:
                continue
            records = self.records.read()
            turn = self.random.choice([told, self.random.randrange(told) + 1])
            compare(root / "turn" / str(turn), records[MAIN, turn], f"turn {turn}")
            path = self.random.choice(sorted(records[MAIN, turn]))
            rows = json.loads(patiently((root / "query" / path).read_bytes))
            row = self.random.choice([row for row in rows if row["op"] != "delete"])
            content = patiently((root / "at" / str(row["iteration"]) / path).read_bytes)
            assert len(content) == row["size"]
            seed, end, _ = content.partition(b"\n")
            # A write whose server died under it may have left its beginning.
            assert not end or body(seed.decode()).startswith(content), f"{path} at {row} begins with {content[:50]!r}"
            self.did()

    # -- in mounts of their own -----------------------------------------------------------------------------------

    def forked(self) -> tuple[str, Committed, Files] | None:
        """Fork any commit; return the fork's name, the commit, and what it holds."""
        source = self.random.choice(patiently(self.repository.workspaces))
        with suppress(NotFound):
            commits = patiently(lambda: self.repository.commits(source))[-TURNS_FORKED:]
            if commits:
                found = self.random.choice(commits)
                name = f"{self.role}-{self.done}"
                records = self.records.read()
                for turn in range(1, found.turn + 1):
                    self.records.note(name, turn, records[source, turn])
                self.repository.fork(source, str(found.turn), name)
                return name, found, dict(records[source, found.turn])
        time.sleep(0.01)
        return None

    def go_on(self, workspace: FuseWorkspace, files: Files, turn: int) -> None:
        """See what a fork holds, and change it; some of it is sealed and given up, which leaves garbage."""
        root = workspace.root
        compare(root, files, f"the fork mounted at {root}")
        if self.random.randrange(2):
            given_up = dict(files)
            self.change(root, given_up, 1000 + self.done)
            patiently(workspace.seal)
            patiently(workspace.rollback)
            compare(root, files, f"what was rolled back at {root}")
        old = self.random.randrange(turn)
        if old:
            held = self.records.read()[root.name, old]
            compare(root / ".chronicle" / "turn" / str(old), held, f"turn {old} of the fork mounted at {root}")
        self.change(root, files, 1000 + self.done)
        self.put(root, files, "fork", root.name)
        compare(root, files, f"what is written at {root}")
        self.records.note(root.name, turn, files)

    def fork(self) -> None:
        while self.goes_on():
            forked = self.forked()
            if forked is None:
                continue
            name, source, files = forked
            mountpoint = self.directory / "mounts" / name
            mounts.mount(self.repository, name, mountpoint, with_caller=True)
            workspace = self.attached(name)
            self.go_on(workspace, files, source.turn + 1)
            workspace.detach()
            self.commit(name, source.turn + 1)
            mounts.unmount(self.repository, mountpoint, force=True)
            self.did()

    def attached(self, name: str) -> FuseWorkspace:
        workspace = patiently(lambda: attach_fuse_workspace(self.repository.socket, name))
        assert workspace is not None
        return workspace

    def elsewhere(self) -> None:
        home = self.directory / "elsewhere"
        socket = socket_elsewhere(self.directory)
        launcher.start(socket, home / "mounts", home / "log", os.getpid(), few_mounts=True)
        with ExitStack() as stack:
            stack.callback(launcher.shut_down, socket)
            while self.goes_on():
                forked = self.forked()
                if forked is None:
                    continue
                name, source, files = forked
                spec = LayerSpec(name, home / "layers", source.ref, 1, source.turn + 1)
                opened = open_fuse_workspace(socket, spec, self.repository.blobs_url, home / "mounts" / name)
                assert isinstance(opened.workspace, FuseWorkspace)
                self.go_on(opened.workspace, files, source.turn + 1)
                self.commit_elsewhere(opened.workspace, name)
                opened.workspace.close()
                self.did()

    def commit_elsewhere(self, workspace: FuseWorkspace, name: str) -> None:
        """Commit as an agent's turn ends: what its own layer sealed goes to the journal that all share."""
        with self.timed():
            ref = patiently(workspace.seal)
            with self.repository.journal(name) as journal:
                commit_writer.put_commit(self.repository, journal, session_of(journal, name), ref, "changed elsewhere")
        patiently(lambda: workspace.adopt(ref))

    # -- the others' enemy ----------------------------------------------------------------------------------------

    def collect(self, grace_s: float) -> None:
        while self.goes_on():
            if self.random.randrange(3) == 0:
                code = kill_in_the_middle(
                    lambda: patiently(lambda: self.collect_once(grace_s)), self.random.uniform(0, 0.2)
                )
                assert code in {0, -signal.SIGKILL}
                tell(self.directory, self.role, killed=int(code != 0))
            else:
                patiently(lambda: self.collect_once(grace_s))
            time.sleep(0.02)

    def collect_once(self, grace_s: float) -> None:
        repository = self.repository
        report = collect(
            repository.blobs_url,
            lambda: _reached(repository),
            GcRules(grace_s=grace_s, merge_from=MERGE_FROM, keep_from=0.8),
        )
        assert not report.damaged
        tell(self.directory, self.role, dropped=report.dropped, merged=report.merged)


def main(role: str, directory: str, grace_s: str) -> None:
    faulthandler.enable()  # SIGABRT prints where it hangs, should it
    worker = Worker(role, Path(directory))
    work = {"write": worker.write, "read": worker.read, "fork": worker.fork, "elsewhere": worker.elsewhere}
    if role == "collect":
        worker.collect(float(grace_s))
    else:
        work[role]()


if __name__ == "__main__":
    main(*sys.argv[1:])
