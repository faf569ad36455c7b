"""A day in the life of a mount: what a programmer does to a disk, done on ext4 and then, at the same path, on a mount.

A clone with git, a virtual environment with a real package from the index and its own tests run in it, SQLite in WAL
mode with readers beside the writer, an archive unpacked and packed again. Then the two trees are the same: names,
kinds, modes, owners, contents, link counts, targets, and times where the steps fix them. What cannot be the same is
looked at for what it means:

* ``.pyc`` files may hold the time of their source: all else is equal, and it is the source's own time, on either side.
* git's index holds inode numbers and times: ``git ls-files`` and ``git status`` say what it means.
* a SQLite file's pages depend on when readers let it be checkpointed: its dump is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.fuse.mountpoints import mountinfo, mounts
from chronicle.fuse.zygote import launcher
from tests.fuse.conftest import wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "toolz==1.0.0"
"""Pure Python, 50 files, and it brings its tests with it."""
PYTEST = "pytest==9.2.0"
LONG_AGO = 1_000_000_000
ROWS = 300
CHRONICLE = Path(sys.executable).with_name("chronicle")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON", "VIRTUAL_ENV"))},
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": f"{LONG_AGO} +0000",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_COMMITTER_DATE": f"{LONG_AGO} +0000",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PYTHONHASHSEED": "0",
}

WRITER = f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
db.execute("pragma synchronous=full")
db.execute("create table t(n integer primary key, text)")
print("ready", flush=True)
for n in range({ROWS}):
    db.execute("insert into t values (?, ?)", (n, str(n) * 50))
    if n % 7 == 0:
        db.execute("update t set text = 'changed' where n = ?", (n // 2,))
db.execute("pragma wal_checkpoint(truncate)")
db.close()
"""
READER = f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
seen = 0
while seen < {ROWS}:
    found = db.execute("select count(*), max(n) from t").fetchone()
    assert found[0] == (0 if found[1] is None else found[1] + 1), found
    assert found[0] >= seen, (found, seen)
    seen = found[0]
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
"""


def run(*command: str | Path, cwd: Path, timeout_s: float = 120, **more: Any) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**ENVIRONMENT, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with some history, and an archive with times, links and modes in it."""
    directory = tmp_path_factory.mktemp("sources")
    repository = directory / "repository"
    repository.mkdir()
    run("git", "init", "-q", "-b", "main", cwd=repository)
    for commit in range(5):
        for number in range(40):
            path = repository / f"package{number % 8}" / f"module{number}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"VALUE = {commit}\n" + f"def f{number}():\n    return VALUE * {number}\n" * 20)
        (repository / "tool").write_text(f"#!/bin/sh\necho {commit}\n")
        (repository / "tool").chmod(0o755)
        (repository / "Größe.bin").write_bytes(hashlib.sha512(b"%d" % commit).digest() * 3000)
        if commit == 0:
            (repository / "link").symlink_to("package1/module1.py")
        run("git", "add", "-A", cwd=repository)
        run("git", "commit", "-q", "-m", f"Change {commit}", cwd=repository)
    tree = directory / "unpacked"
    (tree / "deep" / "er").mkdir(parents=True)
    for number in range(200):
        path = tree / "deep" / f"file{number}"
        path.write_bytes(b"%d" % number * number)
        path.chmod([0o644, 0o600, 0o755, 0o444][number % 4])
        os.utime(path, ns=(LONG_AGO * 10**9, (LONG_AGO + number) * 10**9))
    os.link(tree / "deep" / "file1", tree / "deep" / "er" / "hard")
    (tree / "soft").symlink_to("deep/file2")
    os.mkfifo(tree / "pipe", 0o640)
    for path in (tree / "deep" / "er", tree / "deep", tree):
        os.utime(path, ns=(LONG_AGO * 10**9, LONG_AGO * 10**9))
    with tarfile.open(directory / "archive.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add(tree, "unpacked")
    return directory


def live_a_day(root: Path, sources: Path) -> dict[str, Any]:
    """Do all of it in a directory; return what cannot be compared byte by byte."""
    run("git", "clone", "-q", "--no-hardlinks", sources / "repository", "clone", cwd=root)
    clone = root / "clone"
    run("git", "checkout", "-q", "-b", "work", cwd=clone)
    (clone / "tool").write_text("#!/bin/sh\necho changed\n")
    (clone / "package1" / "module1.py").unlink()
    (clone / "package2").rename(clone / "renamed")
    run("git", "add", "-A", cwd=clone)
    run("git", "commit", "-q", "-m", "Work", cwd=clone)
    run("git", "-c", "gc.auto=0", "merge", "-q", "--no-ff", "main", "-m", "Merge", cwd=clone)
    run("git", "fsck", "--strict", cwd=clone)
    index = run("git", "ls-files", "--stage", cwd=clone), run("git", "status", "--porcelain", cwd=clone)

    # Without a pip of its own: that is 900 files more like those that are installed, and half of the time of all.
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=root)
    python = root / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-cache-dir", PACKAGE, PYTEST, cwd=root)
    tests = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "toolz", cwd=root)
    passed = tests.splitlines()[-1].rpartition(" in ")[0]

    database = root / "data.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, database], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    readers = [subprocess.Popen([sys.executable, "-c", READER, database]) for _ in range(2)]
    assert writer.wait(100) == 0
    assert [reader.wait(100) for reader in readers] == [0, 0]
    writer.stdout.close()
    dump = run(sys.executable, "-m", "tests.fuse.cli.test_day_in_the_life", database, cwd=Path(__file__).parents[3])

    run("tar", "-xzf", sources / "archive.tar.gz", cwd=root)
    options = ["--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]
    run("tar", "-cf", root / "packed.tar", *options, "unpacked", cwd=root)
    return {"git": index, "tests": passed, "database": dump}


def look(root: Path) -> dict[str, Any]:
    """Return what a tree is, by path."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        what: Any = None
        if path.is_symlink():
            what = str(path.readlink())
        elif stat.S_ISREG(status.st_mode) and name != "clone/.git/index" and not name.startswith("data.db"):
            what = content_of(path, name)
        fixed = status.st_mtime_ns if name.startswith("unpacked") else None
        links = status.st_nlink
        found[name] = (oct(kind), oct(stat.S_IMODE(status.st_mode)), status.st_uid, status.st_gid, links, what, fixed)
    return found


def content_of(path: Path, name: str) -> Any:
    content = path.read_bytes()
    if path.suffix != ".pyc":
        return hashlib.sha256(content).hexdigest()
    flags, mtime, size = struct.unpack_from("<III", content, 4)
    if flags != 0:  # checked by a hash of the source, as pytest's are
        return hashlib.sha256(content).hexdigest()
    module = path.name.partition(".")[0]
    source = (path.parent.parent / f"{module}.py").stat()
    assert (mtime, size) == (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF), name
    return hashlib.sha256(content[:8] + content[12:]).hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where the store, the mountpoint and the native tree are; ended whatever happens."""
    yield tmp_path
    socket = tmp_path / "store" / "run" / "zygote.sock"
    pid = launcher.is_running(socket)
    launcher.shut_down(socket)
    if pid is not None:
        wait_for_end(pid)
    mounts.unmount_all_under(tmp_path)


def chronicle(place: Path, *arguments: str | Path, **more: Any) -> str:
    return run(CHRONICLE, *arguments, cwd=Path(__file__).parents[3], **more)


@pytest.mark.timeout(400)
def test_a_day_on_a_mount_leaves_what_a_day_on_disk_does(place: Path, sources: Path) -> None:
    root, store = place / "work", place / "store"
    root.mkdir()
    told = live_a_day(root, sources)
    native = look(root)
    assert len(native) > 1000
    assert "failed" not in told["tests"]
    root.rename(place / "native")

    chronicle(place, "mount", store, root)
    assert live_a_day(root, sources) == told
    mounted = look(root)
    assert differences(mounted, native) == []

    history = json.loads((root / ".chronicle/query/clone/tool").read_text())
    assert history[0]["op"] == "write"
    first, last = history[0]["iteration"], history[-1]["iteration"]
    assert (root / f".chronicle/at/{last}/clone/tool").read_text() == "#!/bin/sh\necho changed\n"
    assert (root / f".chronicle/at/{first}/clone/tool").read_text() == "#!/bin/sh\necho 4\n"
    assert ".chronicle" not in os.listdir(root)  # noqa: PTH208 - as a tool lists it

    chronicle(place, "commit", "-m", "a day", "--store", store)
    chronicle(place, "verify", "--store", store)
    chronicle(place, "unmount", root)
    assert not mountinfo.is_mounted(root)
    chronicle(place, "mount", store, root)
    assert differences(look(root), native) == []
    turn = look(root / ".chronicle/turn/1")
    assert turn.keys() == native.keys()
    assert [name for name in native if turn[name][5] != native[name][5] and native[name][5] is not None] == []
    chronicle(place, "unmount", root)

    # Another node has nothing but the store's blobs and journal.
    shutil.rmtree(store / "layers")
    chronicle(place, "mount", store, root)
    assert differences(look(root), native) == []
    assert run("git", "status", "--porcelain", cwd=root / "clone") == ""
    chronicle(place, "unmount", root)


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[Any]:
    return [
        (name, one.get(name), other.get(name)) for name in sorted({*one, *other}) if one.get(name) != other.get(name)
    ]


def main(path: str) -> None:
    import sqlite3

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        print("\n".join(database.iterdump()))


if __name__ == "__main__":
    main(sys.argv[1])
