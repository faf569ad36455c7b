"""Load on a real mount for as long as wanted: stress-ng and fio, each checking what it reads back.

    python -m tests.soak [--seconds N]        what `make soak` runs: about 45 × N seconds, N being 10

After the load the workspace is committed: what is on the mount must be what is in the tree, every blob of it sound, and
the same must be there after unmounting and mounting again. Which stressors there are, and why not others:

* all of stress-ng's that work on files in a directory and can verify what they did, so that a wrong answer ends it;
* not ``io-uring``, which fails on ext4 as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse.mountpoints import mounts
from chronicle.repository import Repository
from chronicle.testing.workspace_contract import files_below, files_in

if TYPE_CHECKING:
    from collections.abc import Iterator

STRESSORS: Final = (
    *(
        "access",
        "chmod",
        "chown",
        "copy-file",
        "dentry",
        "dir",
        "dirdeep",
        "dirmany",
        "fallocate",
        "fcntl",
        "file-ioctl",
    ),
    *("filename", "flock", "fpunch", "fstat", "getdent", "handle", "hdd", "inode-flags", "inotify", "iomix", "lease"),
    *("link", "locka", "lockf", "lockofd", "mknod", "open", "readahead", "rename", "revio", "seek", "sendfile"),
    *("splice", "symlink", "sync-file", "touch", "utime", "xattr"),
)
FIO: Final = {
    "random": "--rw=randwrite --bs=512-64k --size=64m --ioengine=psync --fsync=64",
    "mapped": "--rw=randwrite --bs=4k --size=32m --ioengine=mmap --fsync=128",
    "mixed": "--rw=randrw --bs=1k-128k --size=64m --ioengine=libaio --iodepth=8",
    "appended": "--rw=write --bs=100-9000 --bs_unaligned --size=16m --ioengine=psync",
    "files": "--rw=randwrite --bs=4k --nrfiles=200 --size=32m --ioengine=psync --openfiles=20",
}
CHRONICLE = Path(sys.executable).with_name("chronicle")


def run(what: str, *command: str | Path, timeout_s: float) -> None:
    """Run a command; it must succeed, and in time."""
    begun = time.monotonic()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=timeout_s)
    print(f"{'ok' if done.returncode == 0 else 'FAILED'}  {what}  {time.monotonic() - begun:.1f} s", flush=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


@contextmanager
def mounted(store: Path, mountpoint: Path) -> Iterator[None]:
    """Mount, and unmount whatever happens."""
    run("mount", CHRONICLE, "mount", store, mountpoint, timeout_s=60)
    try:
        yield
    finally:
        run("unmount", CHRONICLE, "unmount", mountpoint, timeout_s=60)


def stress(root: Path, seconds: int, stressors: tuple[str, ...]) -> None:
    """Run stressors one after the other, two processes each."""
    for stressor in stressors:
        place = root / stressor
        place.mkdir()
        options = ["--temp-path", str(place), "--verify", "--timeout", f"{seconds}s", "--oomable", f"--{stressor}", "2"]
        run(f"stress-ng {stressor}", "stress-ng", *options, timeout_s=20 * seconds + 120)


def write_and_verify(root: Path, seconds: int) -> None:
    """Run fio's jobs; the files stay, so that the tree has something in it."""
    place = root / "fio"
    place.mkdir()
    for name, options in FIO.items():
        verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"]
        command = ["fio", f"--directory={place}", f"--name={name}", *options.split(), *verify, "--numjobs=2"]
        run(f"fio {name}", *command, timeout_s=60 * seconds + 300)


def check(store: Path, root: Path) -> None:
    """Commit what is there, and see that the tree is what is there; then again after another mount."""
    run("commit", CHRONICLE, "commit", "-m", "soaked", "--store", store, timeout_s=600)
    run("verify", CHRONICLE, "verify", "--store", store, timeout_s=600)
    repository = Repository(store)
    with repository.blobs() as blobs:
        tree = files_in(blobs, repository.commits("main")[-1].ref.tree_id)
    assert tree == files_below(root), "the tree is not what is on the mount"
    assert sum(len(content) for content in tree.values() if content is not None) > 1_000_000


def main() -> None:
    """Soak one mount."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=10, help="for each stressor")
    parser.add_argument("--only", nargs="*", default=None, metavar="STRESSOR", help="these of stress-ng's, and no fio")
    options = parser.parse_args()
    for tool in ("stress-ng", "fio"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: tools/setup --soak")
    directory = Path(tempfile.mkdtemp(prefix="chronicle-soak-"))
    try:
        store, root = directory / "store", directory / "mount"
        with mounted(store, root):
            stress(root, options.seconds, STRESSORS if options.only is None else tuple(options.only))
            if options.only is None:
                write_and_verify(root, options.seconds)
            else:
                (root / "content").write_bytes(os.urandom(2_000_000))
            check(store, root)
            log = (store / "run" / "log").read_text()
        with mounted(store, root):
            check(store, root)
        assert "Traceback" not in log, log
    finally:
        mounts.unmount_all_under(directory)
        shutil.rmtree(directory)
    print("all as it should be")


if __name__ == "__main__":
    main()
