"""What a mounted workspace says of its past against a diary of what programs did to it.

`tests/stateful/test_history_model.py` does the same in process, and far more of it. Here are the kernel, which decides
what paths mean, the ``chronicle`` command, servers that are killed with SIGKILL, remounts, and garbage collection.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH110, PTH114, PTH115, PTH208, PTH211 - calls

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.cli.exits import ExitCode
from tests.fuse.caller import Calls
from tests.fuse.command import Command, running_command
from tests.fuse.conftest import served
from tests.stateful.diary import DIRECTORY, FILE, LINK
from tests.stateful.story import Seen, Step, Story, random_story
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: LINK}
KILLS = 3
"""Between two remounts; a server that dies more often is given up."""
RENAME_EXCHANGE = 2
BY_COMMAND = 8
"""One of so many versions is read by the command, too, which takes its time."""


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


class MountRecord:
    """A workspace that is mounted, and worked on by system calls and by the command."""

    def __init__(self, chronicle: Command) -> None:
        self.chronicle = chronicle
        self.root = str(chronicle.mount())
        self.kills = 0
        self.asked = 0

    def on(self, path: str) -> str:
        return f"{self.root}/{path}"

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # -- what is done ---------------------------------------------------------------------------------------------

    def write(self, path: str, content: bytes) -> None:
        if content:
            fd = os.open(self.on(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(fd, content)
            os.close(fd)
        elif os.path.exists(self.on(path)):
            os.truncate(self.on(path), 0)
        else:
            os.mknod(self.on(path), stat.S_IFREG | 0o644)  # what is opened gets its version some time after the close

    def mkdir(self, path: str) -> None:
        os.mkdir(self.on(path), 0o755)

    def symlink(self, path: str, target: bytes) -> None:
        os.symlink(target, os.fsencode(self.on(path)))

    def remove(self, path: str, *, directory: bool) -> None:
        (os.rmdir if directory else os.unlink)(self.on(path))

    def rename(self, old: str, new: str, *, exchange: bool = False) -> None:
        if exchange:
            Calls().rename(self.on(old), self.on(new), RENAME_EXCHANGE)
        else:
            os.rename(self.on(old), self.on(new))

    def link(self, old: str, new: str) -> None:
        os.link(self.on(old), self.on(new))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.on(path), mode)

    def set_attribute(self, path: str, value: bytes) -> None:
        os.setxattr(self.on(path), "user.one", value)

    def commit(self) -> bool:
        return self.chronicle.json("commit", "-m", "as told") is not None

    def rollback(self) -> None:
        raise AssertionError("nobody can roll a mount back")

    def kill(self, how: int) -> None:
        """Kill the server, or mount again, perhaps when garbage was collected."""
        if how % 4 < 2 and self.kills < KILLS:
            (mount,) = served(self.chronicle.store / "run" / "zygote.sock")
            pid = mount["pid"]
            assert isinstance(pid, int)
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
            self.wait_for_other(pid)
            return
        self.chronicle.unmount()
        if how % 4 == 3:
            self.chronicle.on_store("gc", "--now")
        self.root = str(self.chronicle.mount())
        self.kills = 0

    def wait_for_other(self, pid: int) -> None:
        """Wait until another server answers."""

        def answers() -> bool:
            try:
                os.listdir(self.root)
            except OSError:
                return False
            (mount,) = served(self.chronicle.store / "run" / "zygote.sock")
            return mount["pid"] != pid and mount["state"] == "up"

        wait_until(answers, "no other server answers")

    # -- what is said ---------------------------------------------------------------------------------------------

    def seen(self, path: str) -> Seen | None:
        try:
            found = os.lstat(self.on(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Seen(KINDS[stat.S_IFMT(found.st_mode)], stat.S_IMODE(found.st_mode), found.st_size)

    def read(self, path: str) -> bytes:
        return Path(self.on(path)).read_bytes()

    def target(self, path: str) -> bytes:
        return os.fsencode(os.readlink(self.on(path)))

    def names(self, path: str) -> set[str]:
        return set(os.listdir(self.on(path)))

    def history(self, path: str) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = self.chronicle.json("history", path)
        except AssertionError:
            assert "never existed" in self.chronicle.on_store("history", path, code=ExitCode.NOT_FOUND)
            return []
        return rows

    def at(self, path: str, number: int) -> bytes:
        self.asked += 1
        if self.asked % BY_COMMAND:
            place = f".chronicle/at/{number}/{path}"
            return self.target(place) if os.path.islink(self.on(place)) else self.read(place)
        return self.chronicle.on_store("cat", f"{path}@{number}").encode()


@pytest.mark.parametrize("seed", range(12 if NIGHTLY else 2))
def test_everything_said_of_the_past_is_what_was_done(chronicle: Command, seed: int) -> None:
    played = Story(MountRecord(chronicle))
    length = 300 if NIGHTLY else 40
    played.play([step for step in random_story(seed, length) if step.what != "rollback"])
    for how in (0, 3):  # SIGKILL once more; then unmounted, collected and mounted again
        played.take(Step("kill", "a", "a", how))
        played.check()
    played.take(Step("commit", "a", "a", 0))
    played.check()
