"""Taking a commit out of a store into a plain directory."""

from __future__ import annotations

import json
import os
import pty
import random
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.cli import ExitCode, main
from chronicle.clock import SystemClock
from chronicle.errors import InvalidInput, NotFound, StorageRefused
from chronicle.ids import BlobId
from chronicle.repository import Repository, commit_writer
from chronicle.repository.checkout import checkout, count
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.unit.read_only import without_write_access

LARGE = random.Random(9).randbytes(3_000_000)


def fill(root: Path) -> None:
    (root / "sub" / "empty").mkdir(parents=True)
    for number in range(150):
        (root / "sub" / f"{number}").write_text(f"{number}" * 50)
    (root / "large").write_bytes(LARGE)
    (root / "large").chmod(0o640)
    (root / "link").symlink_to("sub/1")
    (root / "other name").hardlink_to(root / "large")
    os.mkfifo(root / "fifo")
    os.utime(root / "sub" / "3", ns=(10**18, 10**18 + 7))
    (root / "sub").chmod(0o555)


def shape(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        body: object = None
        if stat.S_ISREG(status.st_mode):
            body = path.read_bytes()
        elif path.is_symlink():
            body = path.readlink()
        when = status.st_mtime_ns if not path.is_symlink() else 0
        found[str(path.relative_to(root))] = (status.st_mode, status.st_nlink, when, body)
    return found


@pytest.fixture
def made(tmp_path: Path) -> tuple[PackBlobStore, TreeRef, Path]:
    blobs = PackBlobStore(f"file://{tmp_path}/blobs")
    root = tmp_path / "there"
    spec = LayerSpec(workspace_id="w", layers=tmp_path / "layers", base=None, epoch=1, turn=1)
    opened = open_dir_workspace(spec, blobs, root, SystemClock())
    fill(root)
    ref = opened.workspace.seal()
    return blobs, ref, root


def test_it_is_what_was_committed(made: tuple[PackBlobStore, TreeRef, Path], tmp_path: Path) -> None:
    blobs, ref, root = made
    reported: list[tuple[int, int]] = []
    target = tmp_path / "new" / "target"
    checkout(blobs, ref, target, lambda size, files: reported.append((size, files)))
    assert shape(target) == shape(root)
    total = count(blobs, ref)
    assert total.files == 152
    assert sum(files for _, files in reported) == total.files - 1, "a second name is not put again"
    assert sum(size for size, _ in reported) == total.size_bytes - len(LARGE)
    assert list(target.parent.iterdir()) == [target]


def test_what_is_there_is_not_touched(made: tuple[PackBlobStore, TreeRef, Path], tmp_path: Path) -> None:
    blobs, ref, root = made
    (tmp_path / "empty").mkdir()
    checkout(blobs, ref, tmp_path / "empty", lambda _size, _files: None)
    assert shape(tmp_path / "empty") == shape(root)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("empty", "file", "dangling"):
        with pytest.raises(InvalidInput, match="there already"):
            checkout(blobs, ref, tmp_path / name, lambda _size, _files: None)


def test_one_that_fails_leaves_nothing(made: tuple[PackBlobStore, TreeRef, Path], tmp_path: Path) -> None:
    _, ref, _ = made

    class Lacking(PackBlobStore):
        def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
            if blob_id(b"7" * 50) in blob_ids:
                raise NotFound("lost")
            return super().get_many(blob_ids)

    with pytest.raises(NotFound, match="lost"):
        checkout(Lacking(f"file://{tmp_path}/blobs"), ref, tmp_path / "x" / "target", lambda _size, _files: None)
    assert list((tmp_path / "x").iterdir()) == []


def foreign(store: Path, name: str = "main") -> TreeRef:
    """Commit a file, a program and a directory of somebody else's, and a device."""
    repository = Repository(store)
    with repository.used(name) as workspace:
        workspace.write("mine", b"mine")
        for path, mode in (("theirs", 0o640), ("program", 0o6755)):
            workspace.write(path, path.encode())
            workspace.set_mode(path, mode)
        workspace.make_directory("dir")
        workspace.write("dir/below", b"below")
        layer = workspace._layer
        for path in ("theirs", "program", "dir"):
            node = layer.resolve(path.encode())
            assert node is not None
            layer.set_mode(node, stat.S_IMODE(node.mode), 1234, 5678)
        workspace.make_node("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    done = repository.commit(name, "first")
    assert done is not None
    return done.ref


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make what is to be left out")
def test_what_only_root_may_restore_is_left_out_for_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    foreign(store)
    out.mkdir()
    out.chmod(0o777)
    assert main(["checkout", str(store), str(out / "root")]) == ExitCode.OK
    assert "only root" not in capfd.readouterr().err
    status = (out / "root" / "program").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 5678, 0o6755)
    assert (out / "root" / "null").stat().st_rdev == os.makedev(1, 3)

    def check() -> None:
        capfd.readouterr()
        assert main(["checkout", str(store), str(out / "user"), "--json"]) == ExitCode.OS_ERROR
        said = capfd.readouterr()
        assert "so yours are now program (1234:5678), theirs (1234:5678), dir (1234:5678)\n" in said.err
        assert "so there is no null (1:3)\n" in said.err
        assert json.loads(said.out)["left_out"] == [
            {"path": "null", "what": "device", "is": "1:3"},
            {"path": "program", "what": "owner", "is": "1234:5678"},
            {"path": "theirs", "what": "owner", "is": "1234:5678"},
            {"path": "dir", "what": "owner", "is": "1234:5678"},
        ]
        found = sorted((out / "user").rglob("*"))
        assert [path.name for path in found] == ["dir", "below", "mine", "program", "theirs"]
        assert {path.stat().st_uid for path in found} == {os.geteuid()}
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}
        assert (modes["theirs"], modes["program"]) == (0o640, 0o755)
        assert (out / "user" / "dir" / "below").read_text() == "below"

    without_write_access(store, check)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make what is refused")
def test_a_workspace_that_only_root_may_restore_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    ref = foreign(store)
    out.mkdir()
    out.chmod(0o777)

    def check() -> None:
        root = out / "files"
        spec = LayerSpec("w", out / "layers", ref, 1, 1)
        blobs = PackBlobStore(f"file://{store}/blobs")
        for _ in range(2):
            with pytest.raises(
                StorageRefused, match=r"only root may restore dir \(of user 1234, group 5678\), null .*more"
            ):
                open_dir_workspace(spec, blobs, root, SystemClock())
            assert list(root.iterdir()) == []

    without_write_access(store, check)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(made: tuple[PackBlobStore, TreeRef, Path], tmp_path: Path) -> Path:
    """A store with two commits, made without a mount."""
    directory = tmp_path / "store"
    repository = Repository(directory)
    repository.create()
    with repository.journal() as journal:
        commit_writer.ensure_session(repository, journal, "main")
    with repository.blobs() as blobs:
        source = made[0]
        blobs.put({key: source.get(key) for key in source.blob_ids()})
    with repository.journal() as journal:
        session = journal.session("main")
        commit_writer.put_commit(repository, journal, session, made[1], "one")
    return directory


def test_the_command(store: Path, made: tuple[PackBlobStore, TreeRef, Path], tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert main(["checkout", str(store), str(target)]) == ExitCode.OK
    assert shape(target) == shape(made[2])
    assert main(["checkout", f"{store}@1", str(tmp_path / "again"), "--json"]) == ExitCode.OK
    assert main(["checkout", f"file://{store}@1", str(tmp_path / "by url")]) == ExitCode.OK
    assert shape(tmp_path / "by url") == shape(made[2])
    assert main(["checkout", f"{store}@2", str(tmp_path / "no")]) == ExitCode.NOT_FOUND
    assert main(["checkout", str(store), str(target)]) == ExitCode.USAGE
    assert main(["checkout", str(tmp_path / "nowhere"), str(tmp_path / "no")]) == ExitCode.NOT_FOUND


def test_what_the_command_prints(store: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    script = "import sys; from chronicle.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "checkout", str(store)]
    quiet = subprocess.run(
        [*command, str(tmp_path / "a"), "--json"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=True,
    )
    assert json.loads(quiet.stdout)["turn"] == 1
    assert quiet.stderr == ""
    asked = subprocess.run(
        [*command, str(tmp_path / "b"), "--progress"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=True,
    )
    assert "of 152 files" in asked.stderr
    assert asked.stdout == ""
    ours, theirs = pty.openpty()
    try:
        subprocess.run([*command, str(tmp_path / "c")], stderr=theirs, env=environment, timeout=60, check=True)
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "of 152 files" in shown
