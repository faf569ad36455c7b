"""A process that uses a store while others collect garbage in it: it writes, forks or reads, and checks what it finds.

    python -m tests.crash.blobs.gc_work write|fork|read STORE NAME SECONDS

What is in a file says what must be in it. A process says how long its slowest commit took; a collector must have
allowed for that.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import Conflict, NotFound
from chronicle.repository import Repository
from chronicle.repository.commit_log import Committed
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.workspace.api.workspace import ApiWorkspace

SIZES = [10, 1_000, 30_000, 300_000]


def body(seed: str) -> bytes:
    """Return the content that a seed stands for; it begins with the seed."""
    size = SIZES[int(hashlib.sha256(seed.encode()).hexdigest(), 16) % len(SIZES)]
    block = hashlib.sha512(seed.encode()).digest()
    return seed.encode() + b"\n" + (block * (size // len(block) + 1))[:size]


def check(files: Mapping[str, bytes | str | None], where: str) -> int:
    """See that each file is what it says."""
    for path, content in files.items():
        if isinstance(content, bytes):
            seed = content.partition(b"\n")[0].decode()
            assert content == body(seed), f"{path} of {where} is not {seed}"
    return len(files)


class Worker:
    def __init__(self, repository: Repository, name: str, until: float) -> None:
        self.repository = repository
        self.name = name
        self.until = until
        self.random = random.Random(name)
        self.slowest_s = 0.0
        self.done = 0

    def change(self, workspace: ApiWorkspace, turn: int) -> None:
        """Write what only this one has, and what others write too, at the same time or long before."""
        for number in range(self.random.randrange(1, 6)):
            seed = self.random.choice([f"{self.name} {turn} {number}", f"common {turn % 7} {number}", f"round {turn}"])
            workspace.write(f"file{self.random.randrange(30)}", body(seed))
        if turn % 5 == 0 and workspace.exists("file3"):
            workspace.remove("file3")

    def commit(self, name: str) -> None:
        begun = time.monotonic()
        try:
            with suppress(Conflict):
                self.repository.commit(name, "changed")
        finally:
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)

    def write(self) -> None:
        """Commit turn after turn; some turns are sealed and given up, which leaves garbage."""
        turn = 0
        while time.monotonic() < self.until:
            turn += 1
            with self.repository.used(self.name) as workspace:
                self.change(workspace, turn)
                if turn % 3 == 0:
                    workspace.seal()
                    workspace.rollback()
            self.commit(self.name)
            self.done += 1

    def fork(self) -> None:
        """Go on from anybody's commit, from a new name, and read all of it."""
        while time.monotonic() < self.until:
            found = self.any_commit()
            if found is None:
                continue
            workspace, committed = found
            self.done += 1
            name = f"{self.name}-{self.done}"
            self.repository.fork(workspace, str(committed.turn), name)
            with self.repository.used(name) as forked:
                files = {path: forked.read(path) for path, _ in forked.walk()}
                check(files, f"{name}, from {workspace}@{committed.turn}")
                self.change(forked, 1000 + self.done)
            self.commit(name)

    def read(self) -> None:
        """Read anybody's commits, new and old."""
        while time.monotonic() < self.until:
            found = self.any_commit()
            if found is not None:
                workspace, committed = found
                with self.repository.blobs(kept=False) as blobs:
                    check(files_in(blobs, committed.ref.tree_id), f"{workspace}@{committed.turn}")
                    TreeChecker(blobs).check(committed.ref)
                self.done += 1

    def any_commit(self) -> tuple[str, Committed] | None:
        name = self.random.choice(self.repository.workspaces() or [""])
        with suppress(NotFound):
            commits = self.repository.commits(name)
            if commits:
                return name, self.random.choice([commits[-1], self.random.choice(commits)])
        return None


def main(role: str, store: str, name: str, seconds: str) -> None:
    worker = Worker(Repository(Path(store)), name, time.monotonic() + float(seconds))
    try:
        {"write": worker.write, "fork": worker.fork, "read": worker.read}[role]()
    finally:
        print(f"{worker.done} {worker.slowest_s:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
