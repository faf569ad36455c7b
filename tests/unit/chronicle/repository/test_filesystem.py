"""``chronicle://``: workspaces through fsspec, open ones and those of the past."""

from __future__ import annotations

import csv
import errno
import os
import pickle
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from blake3 import blake3
from fsspec.tests import abstract

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import InvalidInput, NotFound
from chronicle.filesystem import ChronicleFileSystem
from chronicle.repository import Repository
from chronicle.workspace.api.workspace import ApiWorkspace, open_api_workspace
from chronicle.workspace.port import LayerSpec
from coordinator.filesystem import AgentFileSystem
from tests.unit.coordinator.cli.cli_home import HomeMaker

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = os.urandom(300_000)


# -- an open workspace, with the tests that fsspec has for all file systems --------------------------------------------


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc] # fsspec has no types
    @pytest.fixture
    def fs(self, tmp_path: Path) -> Iterator[ChronicleFileSystem]:
        with open_api_workspace(LayerSpec("w", tmp_path / "layers", None, 1, 1), MemoryBlobStore()) as workspace:
            yield ChronicleFileSystem(workspace=workspace, auto_mkdir=True)

    @pytest.fixture
    def fs_path(self) -> str:
        return "here"

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        return str(tmp_path / "local")


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[ApiWorkspace]:
    with open_api_workspace(LayerSpec("w", tmp_path / "layers", None, 1, 1), MemoryBlobStore()) as opened:
        yield opened


def test_an_open_workspace_is_read_and_written(workspace: ApiWorkspace) -> None:
    fs = ChronicleFileSystem(workspace=workspace)
    fs.makedirs("d/e")
    with fs.open("d/e/f.txt", "w") as file:
        file.write("zwölf\n")
    with fs.open("d/e/f.txt", "a") as file:
        file.write("end")
    with fs.open("d/e/f.txt", "r+b") as file:
        file.write(b"Z")
    assert fs.cat("d/e/f.txt") == "Zwölf\nend".encode()
    assert fs.cat_file("d/e/f.txt", 1, 3) == "wö".encode()[:2]
    assert [item.op for item in workspace.history("d/e/f.txt")] == ["write"] * 3
    assert fs.checksum("d/e/f.txt") == blake3("Zwölf\nend".encode()).hexdigest()
    assert workspace.read("d/e/f.txt") == fs.cat("chronicle://d/e/f.txt")
    workspace.symlink("e/f.txt", "d/link")
    workspace.symlink("nowhere", "d/dangling")
    assert fs.info("d/link")["type"] == "file"
    listed = {item["name"]: (item["type"], item["size"], item.get("destination")) for item in fs.ls("d", detail=True)}
    assert listed["d/dangling"] == ("other", 0, "nowhere")
    assert listed["d/link"] == ("other", fs.size("d/e/f.txt"), "e/f.txt")
    assert fs.ls("d", detail=False) == ["d/dangling", "d/e", "d/link"]
    fs.mv("d/e/f.txt", "d/e/g.txt")
    assert [item.op for item in workspace.history("d/e/g.txt")] == ["rename"]  # and no copy
    fs.mv("d/e/g.txt", "d")
    fs.cp("d/g.txt", "copy")
    assert fs.exists("d/g.txt")
    fs.touch("new")
    fs.touch("copy", truncate=False)
    assert abs((fs.modified("copy") - datetime.now(UTC)).total_seconds()) < 60
    assert sorted(fs.glob("**/*.txt")) == ["d/g.txt"]
    fs.rm(["d/dangling", "d/link"])  # moved away, what that led to
    assert fs.du("") > 0
    fs.rm("d", recursive=True)
    assert sorted(fs.find("")) == ["copy", "new"]
    with pytest.raises(FileNotFoundError):
        fs.mkdir("x/y", create_parents=False)
    with pytest.raises(FileNotFoundError):
        fs.open("x/y/z", "wb")
    with pytest.raises(NotImplementedError), fs.transaction:
        fs.open("copy", "wb")


def test_what_it_is_of_must_be_said(workspace: ApiWorkspace, tmp_path: Path) -> None:
    for given in ({}, {"workspace": workspace, "store": tmp_path}):
        with pytest.raises(InvalidInput, match="give one of"):
            ChronicleFileSystem(**given)  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="is no store"):
        ChronicleFileSystem(store=tmp_path)


def test_symlinks_are_what_they_are_on_a_disk(workspace: ApiWorkspace, tmp_path: Path) -> None:
    """Compared with fsspec's own file system of local files."""
    theirs, ours = fsspec.filesystem("file"), ChronicleFileSystem(workspace)

    def make(at: str, mkdir: Any, write: Any, symlink: Any) -> None:
        mkdir(f"{at}d")
        mkdir(f"{at}other")
        write(f"{at}d/file", b"12345")
        write(f"{at}other/kept", b"kept")
        for name, target in (
            ("file link", "file"),
            ("dir link", "../other"),
            ("loop", "."),
            ("dangling", "nowhere"),
            ("itself", "itself"),
        ):
            symlink(target, f"{at}d/{name}")

    (tmp_path / "plain").mkdir()
    top = f"{tmp_path}/plain/"
    make(top, os.mkdir, lambda path, data: Path(path).write_bytes(data), os.symlink)
    make("", workspace.make_directory, workspace.write, workspace.symlink)

    def seen(fs: Any, at: str) -> list[object]:
        found: list[object] = []
        for item in sorted(fs.ls(f"{at}d", detail=True), key=lambda item: str(item["name"])):
            size = item["size"] if item["name"] != f"{at}d/dir link" and item["name"] != f"{at}d/loop" else 0
            listed = (item["type"], size, item["islink"], item.get("destination"))
            try:
                info = fs.info(item["name"])["type"]
            except OSError:
                info = "none"
            tests = (fs.exists, fs.lexists, fs.isfile, fs.isdir)
            found.append((item["name"].removeprefix(at), listed, info, [test(item["name"]) for test in tests]))
        found.append(sorted(name.removeprefix(at) for name in fs.find(f"{at}d")))
        found.append(sorted(name.removeprefix(at) for name in fs.find(f"{at}d", withdirs=True)))
        with pytest.raises(FileNotFoundError):
            fs.info(f"{at}d/dangling")
        fs.rm(f"{at}d/dangling", recursive=True)
        fs.rm(f"{at}d/dir link", recursive=True)
        found.append([fs.lexists(f"{at}d/{name}") for name in ("dangling", "dir link", "file link")])
        fs.rm(f"{at}d", recursive=True)
        found.append(sorted(name.removeprefix(at) for name in fs.find(at)))
        return found

    assert seen(ours, "") == seen(theirs, top)
    assert workspace.read("other/kept") == b"kept"


# -- a store -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two commits of one workspace, and a fork of it."""
    repository = Repository(tmp_path / "store")
    with repository.used("main") as workspace:
        workspace.make_directory("data")
        workspace.write("data/a.csv", b"x,y\n1,2\n")
        workspace.write("data/large", LARGE)
        workspace.symlink("data/a.csv", "link")
        workspace.set_mtime("data/a.csv", 10**18)
    repository.commit("main", "first")
    with repository.used("main") as workspace:
        workspace.write("data/a.csv", b"x,y\n3,4\n")
        workspace.remove("data/large")
    repository.commit("main", "second")
    repository.fork("main", "1", "side")
    return repository.directory


def opened(url: str, mode: str = "rb", **options: Any) -> Any:
    """What fsspec does with a URL, whatever the environment has registered."""
    fsspec.register_implementation("chronicle", AgentFileSystem, clobber=True)
    return fsspec.open(url, mode, **options).open()


def test_commits_are_read_by_url(store: Path) -> None:
    with opened("chronicle://@1/data/a.csv", "r", store=str(store)) as file:
        assert list(csv.DictReader(file)) == [{"x": "1", "y": "2"}]
    for name, expected in (("@2", b"3"), ("main", b"3"), ("side", b"1"), ("side@1", b"1"), ("@last", b"3")):
        with opened(f"chronicle://{name}/data/a.csv", store=str(store)) as file:
            assert file.read()[4:5] == expected
    with opened(f"chronicle://@1/link::file://{store}") as file:
        assert file.read() == b"x,y\n1,2\n"
    fs, paths = fsspec.url_to_fs(f"chronicle://@1/data::file://{store}")
    assert fs.ls(paths, detail=False) == ["@1/data/a.csv", "@1/data/large"]


def test_a_commit_is_looked_at(store: Path) -> None:
    fs = AgentFileSystem(store=store)
    assert fs.ls("", detail=False) == ["main", "side"]
    assert fs.find("@1") == ["@1/data/a.csv", "@1/data/large", "@1/link"]
    assert fs.glob("@1/**/*.csv") == ["@1/data/a.csv"]
    info = fs.info("@1/data/large")
    assert (info["type"], info["size"], info["mode"], info["nlink"]) == ("file", 300_000, 0o644, 1)
    assert fs.info("@1/link") == {
        **fs.info("@1/data/a.csv"),
        "name": "@1/link",
        "islink": True,
        "destination": "data/a.csv",
    }
    assert fs.isdir("@1")
    assert fs.isdir("")
    assert not fs.exists("@2/data/large")
    for start, end in ((None, None), (100, 70_000), (299_990, None), (-10, None), (10, -10), (400_000, None), (5, 5)):
        assert fs.cat_file("@1/data/large", start, end) == LARGE[start:end]
    ranges = fs.cat_ranges(["@1/data/large", "@1/data/a.csv"], [10, 4], [20, 5])
    assert ranges == [LARGE[10:20], b"1"]
    with fs.open("@1/data/large") as file:
        file.seek(-5, os.SEEK_END)
        assert file.read() == LARGE[-5:]
    assert fs.modified("@1/data/a.csv") == datetime.fromtimestamp(10**9, UTC)
    assert fs.created("@2/data/a.csv") == fs.created("@1/data/a.csv")
    assert fs.created("@2/data/a.csv") <= fs.modified("@2/data/a.csv")
    assert fs.checksum("@1/data/a.csv") == fs.checksum("side/data/a.csv") == blake3(b"x,y\n1,2\n").hexdigest()
    assert fs.checksum("@1/data") == fs.checksum("side@1/data") != fs.checksum("@2/data")
    assert fs.tail("@1/data/large", 3) == LARGE[-3:]


def test_the_past_is_not_written(store: Path, tmp_path: Path) -> None:
    fs = AgentFileSystem(store=store)
    (tmp_path / "local").write_text("x")
    for call, *arguments in (
        (fs.open, "@1/new", "wb"),
        (fs.open, "@1/link", "ab"),
        (fs.mkdir, "@1/d"),
        (fs.makedirs, "@1/d/e"),
        (fs.rmdir, "@1/data"),
        (fs.rm, "@1/data"),
        (fs.rm_file, "@1/link"),
        (fs.mv, "@1/link", "@1/other"),
        (fs.cp, "@1/link", "@1/other"),
        (fs.touch, "@1/link"),
        (fs.pipe_file, "@1/link", b"x"),
        (fs.put_file, str(tmp_path / "local"), "@1/local"),
    ):
        with pytest.raises(OSError, match="read-only", check=lambda error: error.errno == errno.EROFS):
            call(*arguments)
    for path in ("@9/a", "none/a", "none@1/a", "@1/none", "@1/data/a.csv/x"):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            fs.info(path)
        assert not fs.exists(path)
    with pytest.raises(InvalidInput, match="names no moment"):
        fs.info("main@yesterday/a")
    with pytest.raises(IsADirectoryError):
        fs.open("@1/data")


def test_it_goes_to_another_process(store: Path) -> None:
    fs = AgentFileSystem(store=str(store))
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("@1/data/a.csv") == b"x,y\n1,2\n"
    assert AgentFileSystem.from_json(fs.to_json()).cat("@2/data/a.csv") == b"x,y\n3,4\n"


def test_through_a_cache_of_fsspec_s_own(store: Path, tmp_path: Path) -> None:
    url = f"simplecache::chronicle://@1/data/large::file://{store}"
    with opened(url, simplecache={"cache_storage": str(tmp_path / "cache")}) as file:
        assert file.read() == LARGE


# -- agents ------------------------------------------------------------------------------------------------------------


# fsspec leaves the file of its cache open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_through_a_cache_of_blocks(store: Path, tmp_path: Path) -> None:
    url = f"blockcache::chronicle://@1/data/large::file://{store}"
    with opened(url, blockcache={"cache_storage": str(tmp_path / "cache")}) as file:
        assert file.read() == LARGE


def test_a_block_between_delimiters_is_read(store: Path) -> None:
    fs = AgentFileSystem(store=str(store))
    assert fs.read_block("@1/data/a.csv", 2, 3, b"\n") == b"1,2\n"


def test_an_open_file_goes_to_another_process(store: Path) -> None:
    with AgentFileSystem(store=str(store)).open("@1/data/large") as file:
        assert file.size == len(LARGE)
        file.seek(2)
        with pickle.loads(pickle.dumps(file)) as copy:
            assert copy.read() == file.read() == LARGE[2:]
        assert (file.seek(-1, os.SEEK_END), file.read(), file.read(1)) == (len(LARGE) - 1, LARGE[-1:], b"")


def test_an_open_file_keeps_to_its_commit(store: Path) -> None:
    repository = Repository(store)
    with AgentFileSystem(store=str(store)).open("main/data/a.csv", block_size=1) as file:
        assert file.read(1) == b"x"
        with repository.used("main") as workspace:
            workspace.write("data/a.csv", b"other")
        repository.commit("main", "third")
        assert file.read() == b",y\n3,4\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("notes/alice")
    agent.turn("one", {"data/a.csv": b"x,y\n1,2\n"})
    agent.turn("two", {"data/a.csv": b"x,y\n3,4\n"})
    maker.agent("notes/odd@1").turn("one", {"odd": b"odd"})
    maker.agent("other/bob").turn("one")
    maker.close()
    return tmp_path / "home"


def test_agents_are_read_by_url(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("chronicle://notes/alice@1/data/a.csv", "r", home=str(home)) as file:
        assert list(csv.reader(file)) == [["x", "y"], ["1", "2"]]
    monkeypatch.setenv("PODIUM_HOME", str(home))
    with opened("chronicle://notes/alice/data/a.csv") as file:
        assert file.read() == b"x,y\n3,4\n"
    fs = fsspec.filesystem("chronicle")
    assert fs.ls("", detail=False) == ["notes", "other"]
    assert fs.ls("notes", detail=False) == ["notes/alice", "notes/odd@1"]
    assert fs.find("notes/alice@2") == ["notes/alice@2/data/a.csv"]
    assert fs.cat("notes/odd@1/odd") == b"odd"
    assert fs.ls("other/bob") == fs.ls("notes/alice@0") == []
    for path in ("notes/nobody/a", "notes/alice@9/a", "none", "notes/alice@1/none"):
        assert not fs.exists(path)
    with pytest.raises(FileNotFoundError, match="there is no turn 9"):
        fs.info("notes/alice@9/a")
    with pytest.raises(OSError, match="read-only"):
        fs.open("notes/alice@1/new", "wb")


def test_the_protocol_is_registered() -> None:
    (found,) = entry_points(group="fsspec.specs", name="chronicle")
    assert found.load() is AgentFileSystem
