"""``chronicle unmount``: what is in use stays, and the mount is found however its path is written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from chronicle.cli import ExitCode
from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.zygote import launcher
from chronicle.repository import mounts
from tests.fuse.command import Command, running_command
from tests.fuse.conftest import served, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEADLINE_S = 60


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


@contextmanager
def _program(code: str, root: Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a program that prints a line when it uses the mount, and goes on when it is told to."""
    command = [sys.executable, "-c", code, str(root)]
    with subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate(timeout=_DEADLINE_S)


_WAIT = "print('ready', flush=True); sys.stdin.read()"
_USES = {
    "has dir/a open": f"import sys; f = open(sys.argv[1] + '/dir/a', 'w'); {_WAIT}",
    "is in dir": f"import os, sys; os.chdir(sys.argv[1] + '/dir'); {_WAIT}",
    "has dir/a mapped": "import mmap, os, sys; f = open(sys.argv[1] + '/dir/a', 'rb'); "
    f"m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); os.closerange(3, 1000); {_WAIT}",
    "has gone open": "import os, sys; p = sys.argv[1] + '/gone'; f = open(p, 'w'); os.unlink(p); " + _WAIT,
}


@pytest.mark.parametrize("use", _USES)
def test_what_a_program_uses_stays_mounted(chronicle: Command, use: str) -> None:
    root = chronicle.mount()
    (root / "dir").mkdir()
    (root / "dir" / "a").write_text("one")
    with _program(_USES[use], root) as process:
        said = chronicle("unmount", root, code=ExitCode.CONFLICT)
        assert f"(process {process.pid}) {use}" in said
        assert f"; `chronicle unmount --force {root}` unmounts it all the same" in said
        assert (root / "dir" / "a").exists()
    chronicle("unmount", root)
    assert not mountinfo.is_mounted(root)


def test_what_is_served_by_a_stopped_process_is_not_taken_for_abandoned(
    chronicle: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = chronicle.mount()
    monkeypatch.setattr(launcher, "_CALL_DEADLINE_S", 0.5)  # it answers none of the calls
    monkeypatch.setattr(mounts, "_ENDING_DEADLINE_S", 0.5)
    (root / "dir").mkdir()
    pid = launcher.is_running(chronicle.store / "run" / "zygote.sock")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with _program(_USES["has dir/a open"], root):
            assert "has dir/a open" in chronicle("unmount", root, code=ExitCode.CONFLICT)
        said = chronicle("unmount", root, code=ExitCode.UNAVAILABLE)
        assert "does not answer" in said
        assert f"; `chronicle unmount --force {root}` unmounts without it" in said
        assert (root / "dir" / "a").exists()
        chronicle("unmount", "--force", root)
        assert not mountinfo.is_mounted(root)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for_end(pid)


def test_nothing_is_lost_by_who_has_a_file_open(chronicle: Command) -> None:
    root = chronicle.mount()
    code = "import sys; f = open(sys.argv[1] + '/a', 'w'); print('ready', flush=True); f.write(sys.stdin.read())"
    with _program(code, root) as process:
        chronicle("unmount", root, code=ExitCode.CONFLICT)
        process.communicate("written later", timeout=_DEADLINE_S)
    assert process.returncode == 0
    chronicle("unmount", root)
    assert chronicle.on_store("cat", "a") == "written later"


def test_by_force_it_is_unmounted_all_the_same(chronicle: Command) -> None:
    root = chronicle.mount()
    with _program(_USES["has gone open"], root):
        chronicle("unmount", root, "--force")
        assert not mountinfo.is_mounted(root)


def test_what_has_mounts_below_it_stays(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "side").mkdir()
    chronicle("mount", chronicle.store, root / "side", "-w", "side")
    (root / "side" / "a").write_text("one")
    assert f"something is mounted at {root}/side" in chronicle("unmount", root, code=ExitCode.CONFLICT)
    assert (root / "side" / "a").read_text() == "one"
    chronicle("unmount", root / "side")
    chronicle("unmount", root)


def test_a_mount_that_hangs_is_looked_at_and_unmounted(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "dir").mkdir()
    with _program(_USES["is in dir"], root) as process:
        (pid,) = (int(str(mount["pid"])) for mount in served(chronicle.store / "run" / "zygote.sock"))
        os.kill(pid, signal.SIGSTOP)
        command = [sys.executable, "-c", "import sys; from chronicle.cli import main; sys.exit(main())", "unmount"]
        refused = subprocess.run([*command, root], capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        assert refused.returncode == ExitCode.CONFLICT
        assert f"(process {process.pid}) is in dir" in refused.stderr
        subprocess.run([*command, "--force", f"{root}/../{root.name}"], timeout=_DEADLINE_S, check=True)
    assert not mountinfo.is_mounted(root)


def test_the_mount_is_found_however_its_path_is_written(
    chronicle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = chronicle.mount()
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("mnt")
    (tmp_path / "above").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "sub")
    for written in (
        "../mnt",
        f"../../{tmp_path.name}/mnt",
        "../link",
        "../above/mnt/",
        "../above/above/link",
        "../mnt/../mnt",
    ):
        pid = launcher.is_running(chronicle.store / "run" / "zygote.sock")
        chronicle("unmount", written)
        assert not mountinfo.is_mounted(root)
        assert pid is not None
        wait_for_end(pid)
        chronicle("mount", chronicle.store, written)
        assert mountinfo.is_mounted(root)
        assert f"mounted at {root}\n" in chronicle.said
    monkeypatch.chdir(root)  # what is in it is this command itself, which ends
    chronicle("unmount", ".")
    assert not mountinfo.is_mounted(root)


def test_ctrl_c_of_a_foreground_mount_ends_it_while_it_is_used(chronicle: Command) -> None:
    code = "import sys; from chronicle.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "mount", str(chronicle.store), str(chronicle.mountpoint), "--foreground"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "is mounted at" in process.stderr.readline()
        pid = launcher.is_running(chronicle.store / "run" / "zygote.sock")
        with _program(_USES["has gone open"], chronicle.mountpoint):
            process.send_signal(signal.SIGINT)
            assert process.wait(_DEADLINE_S) == ExitCode.OK
        assert pid is not None
        wait_for_end(pid)
        assert not mountinfo.is_mounted(chronicle.mountpoint)
