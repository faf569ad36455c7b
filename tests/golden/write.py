"""Writes a golden home and store with this version: ``python -m tests.golden.write NAME``; see `tests.golden.homes`.

Do it once for each release that changes a format, and add the archive; an archive is never written again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.golden.homes import FILER

ANN: Final = (
    "write notes/a.txt ONE",
    "write notes/a.txt TWO",
    "write deep/er/b.txt B1",
    "move deep moved",
    "move moved/er/b.txt b.txt",
    "fill big.bin 300000",
    "remove notes",
    "write notes/a.txt THREE",
)
ANNS_FILES: Final = ("notes/a.txt", "deep/er/b.txt", "moved/er/b.txt", "b.txt", "big.bin", "after.txt")
BENS_FILES: Final = ("notes/a.txt", "deep/er/b.txt", "moved/er/b.txt", "moved/er/c.txt")
STORES_FILES: Final = ("f", "a/b/c", "x/b/c", "y", "link", "z", "hole")
LEFT_OUT: Final = ("logs", "run", "use")
"""What a home and a store have for this machine only."""


def run(*command: str | Path) -> str:
    """Run a command of this environment, and return what it printed."""
    program, *arguments = map(str, command)
    argv = [str(Path(sys.executable).with_name(program)), *arguments]
    return subprocess.check_output(argv, text=True, timeout=300)


def write_home(home: Path, expected: Path) -> None:
    """Write the home, and what is said of it."""

    def podium(*arguments: str) -> str:
        return run("podium", *arguments, "--home", home)

    def say(key: str, text: str) -> None:
        podium("run", FILER, "--key", key, "-m", text)

    for text in ANN:
        say("ann", text)
    podium("fork", "filer/ann@4", "ben")
    say("ben", "write moved/er/c.txt FORKED")
    podium("rewind", "filer/ann", "3")
    say("ann", "write after.txt REWOUND")
    for key, turns, files in (("ann", 11, ANNS_FILES), ("ben", 6, BENS_FILES)):
        (expected / f"log.{key}.jsonl").write_text(podium("log", f"filer/{key}", "--all", "--json"))
        for turn in range(turns):
            (expected / f"state.{key}.{turn}.json").write_text(podium("state", f"filer/{key}@{turn}", "--json"))
        for path in files:
            shown = podium("history", f"filer/{key}", path, "--json")
            (expected / f"history.{key}.{path.replace('/', '_')}.jsonl").write_text(shown)


def write_store(store: Path, mountpoint: Path, expected: Path) -> None:
    """Write the store, and what is said of it."""
    run("chronicle", "mount", store, mountpoint)
    try:
        (mountpoint / "f").write_text("ONE\n")
        (mountpoint / "a/b").mkdir(parents=True)
        (mountpoint / "a/b/c").write_text("B\n")
        (mountpoint / "link").symlink_to("f")
        run("chronicle", "commit", "--store", store, "-m", "change")
        (mountpoint / "f").write_text("TWO\n")
        (mountpoint / "a").rename(mountpoint / "x")
        (mountpoint / "z").write_bytes(bytes(n * n % 251 for n in range(300_000)))
        os.setxattr(mountpoint / "f", "user.note", b"hello")
        run("chronicle", "commit", "--store", store, "-m", "change")
        with (mountpoint / "f").open("a") as file:
            file.write("THREE\n")
        (mountpoint / "x/b/c").rename(mountpoint / "y")
        (mountpoint / "hole").touch()
        os.truncate(mountpoint / "hole", 1024 * 1024)
        run("chronicle", "commit", "--store", store, "-m", "change")
        (mountpoint / "late").write_text("not committed\n")
        (expected / "clog.jsonl").write_text(run("chronicle", "log", "--store", store, "--json"))
        for path in STORES_FILES:
            shown = run("chronicle", "history", "--store", store, path, "--json")
            (expected / f"chistory.{path.replace('/', '_')}.jsonl").write_text(shown)
    finally:
        run("chronicle", "unmount", mountpoint)


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is of this machine, and its users."""
    parts = Path(member.name).parts
    if len(parts) > 1 and parts[1] in LEFT_OUT:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def main(name: str) -> None:
    """Write the archive ``NAME.tar.gz`` beside this file."""
    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory)
        (files / "expected").mkdir()
        (files / "mnt").mkdir()
        write_home(files / "home", files / "expected")
        write_store(files / "store", files / "mnt", files / "expected")
        with tarfile.open(Path(__file__).with_name(f"{name}.tar.gz"), "x:gz") as archive:
            for part in ("home", "store", "expected"):
                archive.add(files / part, part, filter=kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
