"""Who may do what: the mount answers every user as the native file system does, supplementary groups included.

Only root can be several users, and only root's mounts let others in; so as another user these tests are skipped.
"""

from __future__ import annotations

import os
import stat
from itertools import product
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.mountpoints.availability import TRANSPORTS
from tests.fuse.caller import UTIME_NOW, UTIME_OMIT
from tests.fuse.posix.pair import Pair, User, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

OWNER, MEMBER, OTHER, GROUP, STRANGE = 61_001, 61_002, 61_003, 62_000, 62_001
ACCESSES = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC)


@pytest.fixture(scope="module", params=TRANSPORTS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def people(pair: Pair) -> dict[str, User]:
    return {
        "root": pair.user(0, 0),
        "owner": pair.user(OWNER, OWNER, GROUP),
        "member": pair.user(MEMBER, MEMBER, GROUP),
        "other": pair.user(OTHER, OTHER),
    }


def place(pair: Pair, people: dict[str, User], name: str, mode: int = 0o777) -> str:
    """Make a directory of root's for a test."""
    path = f"@/{name}"
    pair.both(people["root"], "mkdir", path)
    pair.both(people["root"], "chmod", path, mode)
    return path


def test_modes_of_files(pair: Pair, people: dict[str, User]) -> None:
    at = place(pair, people, "modes")
    refused = 0
    for mode in (0o000, 0o400, 0o040, 0o004, 0o600, 0o060, 0o006, 0o644, 0o664, 0o777, 0o077, 0o707):
        path = f"{at}/{mode:o}"
        pair.both(people["root"], "put", path, "text")
        pair.both(people["root"], "chown", path, OWNER, GROUP)
        pair.both(people["root"], "chmod", path, mode)
        for user in people.values():
            for flags in ACCESSES:
                refused += pair.both(user, "open", path, flags) == "EACCES"
            for wanted in (os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK):
                pair.both(user, "access", path, wanted)
            pair.both(user, "truncate", path, 2)
            pair.both(user, "setxattr", path, "user.a", "1")
            pair.both(user, "getxattr", path, "user.a")
            pair.both(user, "lstat", path)
    assert refused > 50


def test_modes_of_directories(pair: Pair, people: dict[str, User]) -> None:
    at = place(pair, people, "directories")
    for mode in (0o700, 0o070, 0o007, 0o750, 0o770, 0o730, 0o755, 0o711, 0o744, 0o722):
        path = f"{at}/{mode:o}"
        pair.both(people["root"], "mkdir", path)
        pair.both(people["root"], "put", f"{path}/file", "text")
        pair.both(people["root"], "chown", path, OWNER, GROUP)
        pair.both(people["root"], "chmod", path, mode)
        for name, user in people.items():
            pair.both(user, "listdir", path)
            pair.both(user, "lstat", f"{path}/file")
            pair.both(user, "lstat", f"{path}/absent")
            pair.both(user, "mkdir", f"{path}/{name}")
            pair.both(user, "put", f"{path}/{name}/file", "text")
            pair.both(user, "symlink", "file", f"{path}/{name}.link")
            pair.both(user, "mknod", f"{path}/{name}.fifo", stat.S_IFIFO | 0o600)
            pair.both(user, "link", f"{path}/file", f"{path}/{name}.hard")
            pair.both(user, "rename", f"{path}/{name}.link", f"{path}/{name}.moved")
            pair.both(user, "unlink", f"{path}/{name}.moved")
            pair.both(user, "rmdir", f"{path}/{name}")
        pair.both(people["root"], "listdir", path)


def test_sticky_directories(pair: Pair, people: dict[str, User]) -> None:
    """Only the owner of a file, of the directory, or root takes a file out of it."""
    for directory_owner in ("root", "owner"):
        at = place(pair, people, f"sticky-{directory_owner}", 0o1777)
        uid = int(people[directory_owner].ids[0])
        pair.both(people["root"], "chown", at, uid, uid)
        for (maker, user), act in product(product(people, people), ("unlink", "rename", "over", "rmdir", "movedir")):
            path = f"{at}/{maker}.{user}.{act}"
            if act in {"rmdir", "movedir"}:
                pair.both(people[maker], "mkdir", path)
            else:
                pair.both(people[maker], "put", path, "text")
            match act:
                case "unlink" | "rmdir":
                    pair.both(people[user], act, path)
                case "over":
                    pair.both(people[user], "put", f"{path}.new", "new")
                    pair.both(people[user], "rename", f"{path}.new", path)
                case _:
                    pair.both(people[user], "rename", path, f"{path}.moved")
        pair.both(people["root"], "listdir", at)


def test_who_may_change_modes_and_owners(pair: Pair, people: dict[str, User]) -> None:
    at = place(pair, people, "changes")
    ids = (-1, OWNER, MEMBER, GROUP, STRANGE)
    for name, user in people.items():
        for number, (kind, uid, gid) in enumerate(product(("file", "dir"), ids, ids)):
            path = f"{at}/{name}{number}"
            pair.both(people["root"], "put" if kind == "file" else "mkdir", path, *(["x"] if kind == "file" else []))
            pair.both(people["root"], "chown", path, OWNER, GROUP)
            pair.both(people["root"], "chmod", path, 0o6755)
            if (pair.transport, uid, gid) == ("raw", -1, -1) and name not in {"root", "owner"}:
                continue  # the kernel does not say what is wanted, so nothing is done; natively it is refused
            pair.both(user, "chown", path, uid, gid)
            pair.both(user, "lstat", path)
            pair.both(user, "chmod", path, 0o2711)
            pair.both(user, "lstat", path)


def test_setuid_and_setgid_go_when_someone_writes(pair: Pair, people: dict[str, User]) -> None:
    at = place(pair, people, "setuid")
    for name, user in people.items():
        for mode in (0o4777, 0o2777, 0o2767, 0o6777, 0o6666, 0o2666):
            if pair.transport == "pyfuse3" and not mode & 0o010:
                continue  # there the kernel takes set-group-id away from what the group may run, and nothing else
            for act in ("append", "truncate", "open", "hold", "xattr"):
                path = f"{at}/{name}.{mode:o}.{act}"
                pair.both(people["root"], "put", path, "text")
                pair.both(people["root"], "chown", path, OWNER, GROUP)
                pair.both(people["root"], "chmod", path, mode)
                match act:
                    case "append":
                        pair.both(user, "append", path, "more")
                    case "truncate":
                        pair.both(user, "truncate", path, 1)
                    case "open":
                        pair.both(user, "open", path, os.O_WRONLY | os.O_TRUNC)
                    case "hold":
                        pair.both(user, "hold", "f", path, os.O_RDWR)
                        pair.both(user, "pwrite", "f", "x", 0)
                        pair.both(user, "fstat", "f")
                        pair.both(user, "ftruncate", "f", 1)
                        pair.both(user, "drop", "f")
                    case _:
                        pair.both(user, "setxattr", path, "user.a", "1")
                pair.both(user, "lstat", path)


def test_groups_are_inherited(pair: Pair, people: dict[str, User]) -> None:
    for mode in (0o777, 0o2777):
        at = place(pair, people, f"inherit{mode:o}", mode)
        pair.both(people["root"], "chown", at, 0, GROUP)
        pair.both(people["root"], "chmod", at, mode)
        for name, user in people.items():
            pair.both(user, "umask", 0)
            pair.both(user, "open", f"{at}/{name}.file", os.O_CREAT | os.O_WRONLY, 0o2775)
            pair.both(user, "mkdir", f"{at}/{name}.dir", 0o2775)
            pair.both(user, "mkdir", f"{at}/{name}.plain", 0o755)
            pair.both(user, "symlink", "x", f"{at}/{name}.link")
            pair.both(user, "mknod", f"{at}/{name}.fifo", stat.S_IFIFO | 0o2660)
            pair.both(user, "bind", f"{at}/{name}.sock")
            for kind in ("file", "dir", "plain", "link", "fifo", "sock"):
                pair.both(user, "lstat", f"{at}/{name}.{kind}")
            pair.both(user, "umask", 0o027)
            pair.both(user, "open", f"{at}/{name}.masked", os.O_CREAT | os.O_WRONLY, 0o2777)
            pair.both(user, "lstat", f"{at}/{name}.masked")
            pair.both(user, "umask", 0o022)


def test_who_may_set_times(pair: Pair, people: dict[str, User]) -> None:
    at = place(pair, people, "times")
    values = (UTIME_NOW, UTIME_OMIT, 1_234_567_890_123_456_789)
    for name, user in people.items():
        for number, (mode, atime, mtime) in enumerate(product((0o644, 0o666, 0o600), values, values)):
            path = f"{at}/{name}{number}"
            pair.both(people["root"], "put", path, "text")
            pair.both(people["root"], "chown", path, OWNER, GROUP)
            pair.both(people["root"], "chmod", path, mode)
            pair.both(people["root"], "utimens", path, 10**18, 10**18 + 1)
            pair.both(user, "utimens", path, atime, mtime)
            shown = [pair.ask(side, people["root"], "times", path)[1] for side in (0, 1)]
            # What is set to now differs by the moment between the two; all else is equal to the nanosecond.
            fixed = [[value if value <= 1_234_567_890_123_456_789 else "now" for value in times[:2]] for times in shown]
            assert fixed[0] == fixed[1], (name, mode, atime, mtime)


def test_devices_are_made_by_root(pair: Pair, people: dict[str, User]) -> None:
    at = place(pair, people, "devices")
    for name, user in people.items():
        for kind, device in (("c", os.makedev(1, 3)), ("b", os.makedev(7, 300)), ("c", os.makedev(0, 0))):
            mode = (stat.S_IFCHR if kind == "c" else stat.S_IFBLK) | 0o640
            path = f"{at}/{name}.{kind}.{device}"
            pair.both(user, "mknod", path, mode, device)
            pair.both(user, "lstat", path)
    # Both would open it natively. A mount is `nodev`: what is in a workspace gives no access to hardware.
    path = f"{at}/root.c.{os.makedev(1, 3)}"
    assert pair.ask(0, people["root"], "open", path, os.O_RDONLY) == ["errno", "EACCES"]


def test_history_is_its_owners(pair: Pair, people: dict[str, User]) -> None:
    """Old contents are there whatever modes their files have or had, so nobody else may look."""
    pair.both(people["root"], "put", "@/private", "secret")
    pair.both(people["root"], "chmod", "@/private", 0o600)
    assert pair.ask(0, people["other"], "read", "@/private") == ["errno", "EACCES"]
    for path in ("@/.chronicle/at/1/private", "@/.chronicle/log", "@/.chronicle/query/private"):
        assert pair.ask(0, people["other"], "read", path) == ["errno", "EACCES"]
        assert pair.ask(0, people["root"], "read", path)[0] == "ok"
    assert pair.ask(0, people["other"], "listdir", "@/.chronicle") == ["errno", "EACCES"]


def test_nobody_changes_history(pair: Pair, people: dict[str, User]) -> None:
    for name, arguments in (
        ("put", ("@/.chronicle/log", "x")),
        ("mkdir", ("@/.chronicle/x",)),
        ("unlink", ("@/.chronicle/log",)),
        ("chmod", ("@/.chronicle/log", 0o777)),
        ("chown", ("@/.chronicle", OTHER, OTHER)),
        ("rename", ("@/.chronicle", "@/else")),
        ("rename", ("@/private", "@/.chronicle")),
        ("mkdir", ("@/.chronicle",)),
        ("utimens", ("@/.chronicle/log", 1, 1)),
        ("setxattr", ("@/.chronicle", "user.a", "1")),
        ("rmdir", ("@/.chronicle",)),
    ):
        answer = pair.ask(0, people["root"], name, *arguments)
        assert answer[0] == "errno", name
        assert answer[1] in {"EROFS", "EEXIST", "EISDIR"}, (name, answer)
