"""Commands that use a store at a URL at the same moment, on one node and on several."""

from __future__ import annotations

import errno
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs.media.fsspec_objects import RemoteObjects, open_remote
from chronicle.errors import Conflict, Corrupt, InvalidInput, NotFound, StorageRefused, UnsupportedFormat
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.repository import Repository, remote_commits
from chronicle.repository.remote_commits import RemoteCommits
from chronicle.repository.store_directory import StoreDirectory
from chronicle.workspace.layer.commit_cycle import CommitCycle
from chronicle.workspace.layer.durability import Durability
from tests.s3_server import BUCKET, running_s3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NEWER = b'{"chronicle-store": 99}'


@pytest.fixture
def url() -> Iterator[str]:
    url = f"memory://{uuid4().hex}"
    yield url
    if fsspec.filesystem("memory").exists(url):
        fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture
def first(url: str, tmp_path: Path) -> Repository:
    return Repository(tmp_path / "first", url=url)


@pytest.fixture
def second(url: str, tmp_path: Path) -> Repository:
    return Repository(tmp_path / "second", url=url)


def again(node: Repository) -> Repository:
    """Return what another command of the node opens."""
    url = node.blobs_url.removesuffix("/blobs")
    return Repository(node.directory, url=url)


def write(node: Repository, text: str, workspace: str = "main") -> None:
    with node.used(workspace) as opened:
        opened.write("file", text.encode())


def commit(node: Repository, text: str, workspace: str = "main") -> int:
    write(node, text, workspace)
    committed = node.commit(workspace, text)
    assert committed is not None
    return committed.turn


def read(node: Repository, workspace: str = "main") -> str:
    with node.used(workspace) as opened:
        return opened.read("file").decode()


def messages(node: Repository, workspace: str = "main") -> list[str]:
    return [committed.message for committed in node.commits(workspace)]


def meanwhile(
    patch: pytest.MonkeyPatch, of: type, name: str, others: Callable[[], object], *, after: bool = False
) -> list[None]:
    """Let others do something just before, or after, a method is called for the first time; return whether they did."""
    real = getattr(of, name)
    done: list[None] = []

    def call(*arguments: Any, **options: Any) -> Any:
        comes_first = not done
        if comes_first:
            done.append(None)
        if comes_first and not after:
            others()
        found = real(*arguments, **options)
        if comes_first and after:
            others()
        return found

    patch.setattr(of, name, call)
    return done


# -- committing --------------------------------------------------------------------------------------------------------


def test_a_commit_that_another_command_pulls_before_it_is_in_the_journal_is_done(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(first, "one")
    write(first, "two")
    pulled = meanwhile(monkeypatch, RemoteCommits, "publish", lambda: messages(again(first)), after=True)
    committed = first.commit("main", "two")
    assert pulled
    assert committed is not None
    assert committed.turn == 2
    assert first.commit("main", "nothing new") is None, "the workspace stands on it"
    assert commit(first, "three") == 3
    assert messages(first) == messages(second) == ["one", "two", "three"]


def test_a_commit_is_done_even_if_others_have_gone_on_before_it_is_in_the_journal(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(first, "one")
    write(first, "two")

    def go_on() -> None:
        assert read(second) == "two"
        assert commit(second, "three") == 3
        assert messages(again(first)) == ["one", "two", "three"]

    meanwhile(monkeypatch, RemoteCommits, "publish", go_on, after=True)
    committed = first.commit("main", "two")
    assert committed is not None
    assert committed.turn == 2
    assert first.commit("main", "nothing new") is None
    assert read(first) == "three"
    assert first.workspaces() == ["main"], "nothing was to be kept"
    assert caplog.text == ""
    assert commit(first, "four") == 4
    assert messages(second) == ["one", "two", "three", "four"]


def test_a_commit_that_another_node_forestalls_is_not_done(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(first, "one")
    write(first, "first's")

    def be_first() -> None:
        commit(second, "second's")
        assert messages(again(first)) == ["one", "second's"]

    meanwhile(monkeypatch, RemoteCommits, "publish", be_first)
    with pytest.raises(Conflict, match="another node has committed 'main' meanwhile"):
        first.commit("main", "first's")
    assert messages(first) == messages(second) == ["one", "second's"]
    assert read(first) == "second's"
    (kept,) = [name for name in first.workspaces() if name.startswith("main.kept-")]
    assert kept in caplog.text
    assert read(second, kept) == "first's"


def test_a_commit_that_the_nodes_journal_cannot_take_is_done(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(first, "one")
    write(first, "two")

    def refuse() -> None:
        raise StorageRefused("the disk is full")

    with monkeypatch.context() as patch:
        meanwhile(patch, SqliteJournalStore, "commit", refuse)
        committed = first.commit("main", "two")
    assert committed is not None
    assert "commit 2 of main is in the store" in caplog.text
    assert first.commit("main", "nothing new") is None
    assert commit(first, "three") == 3
    assert messages(first) == messages(second) == ["one", "two", "three"]


def test_a_commit_that_no_url_has_and_the_journal_cannot_take_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Repository(tmp_path / "store")
    commit(local, "one")
    write(local, "two")

    def refuse() -> None:
        raise StorageRefused("the disk is full")

    with monkeypatch.context() as patch:
        meanwhile(patch, SqliteJournalStore, "commit", refuse)
        with pytest.raises(StorageRefused, match="full"):
            local.commit("main", "two")
    assert messages(local) == ["one"]
    assert commit(local, "three") == 2


@pytest.mark.parametrize("error", [StorageRefused("the disk is full"), OSError(28, "No space left on device")])
@pytest.mark.parametrize("steps", [["adopt"], ["begin_turn"], ["sync_all"], ["adopt", "sync_all"]])
@pytest.mark.parametrize("at_url", [True, False])
def test_a_commit_that_the_workspace_cannot_be_told_of_is_done(
    first: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at_url: bool,
    steps: list[str],
    error: Exception,
) -> None:
    node = first if at_url else Repository(tmp_path / "store")
    commit(node, "one")
    write(node, "two")

    def fail_at(patch: pytest.MonkeyPatch, step: str) -> None:
        part = Durability if step == "sync_all" else CommitCycle
        real = getattr(part, step)

        def refuse(*arguments: Any) -> None:
            if len(messages(node)) == 2:  # it is made
                raise error
            real(*arguments)

        patch.setattr(part, step, refuse)

    with monkeypatch.context() as patch:
        for step in steps:
            fail_at(patch, step)
        committed = node.commit("main", "two")
    assert committed is not None
    assert committed.turn == 2
    assert "commit 2 of main is made" in caplog.text
    assert node.commit("main", "nothing new") is None
    assert commit(node, "three") == 3
    assert messages(node) == ["one", "two", "three"]
    assert node.workspaces() == ["main"], "nothing was to be kept"
    with node.used("main") as opened:
        assert [item.turn for item in opened.history("file")] == [1, 2, 3]


def test_a_disk_that_fails_before_a_commit_is_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Repository(tmp_path / "store")
    commit(node, "one")

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Durability, "sync_all", fail)
        with pytest.raises(OSError, match="Input/output error"):
            node.commit("main", "nothing new")
    write(node, "two")
    with monkeypatch.context() as patch:
        patch.setattr(CommitCycle, "seal", fail)
        with pytest.raises(OSError, match="Input/output error"):
            node.commit("main", "two")
    assert messages(node) == ["one"]
    assert commit(node, "three") == 2


def test_a_commit_that_the_workspace_was_not_told_of_is_not_kept_when_others_go_on(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(first, "one")
    write(first, "two")

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CommitCycle, "adopt", refuse)
        committed = first.commit("main", "two")
    assert committed is not None
    assert "commit 2 of main is made" in caplog.text
    caplog.clear()
    assert read(second) == "two"
    assert commit(second, "three") == 3
    assert read(first) == "three"
    assert first.workspaces() == ["main"]
    assert caplog.text == ""
    assert commit(first, "four") == 4
    assert messages(first) == messages(second) == ["one", "two", "three", "four"]
    with first.used("main") as opened:
        assert [item.turn for item in opened.history("file")] == [1, 2, 3, 4]


# -- pulling -----------------------------------------------------------------------------------------------------------


def pull_some(node: Repository, count: int) -> None:
    """Pull as another command of the node that has begun when there were so many commits."""
    record = node.remote
    assert record is not None
    with closing(SqliteJournalStore(node.directory / "journal.db")) as journal:
        there = record._check_complete(journal, "main")["main"]
        record._pull(journal, journal.session("main"), {name: there[name] for name in sorted(there)[:count]})


@pytest.mark.parametrize("together", [256, 2])
@pytest.mark.parametrize("taken", [1, 3, 5])
def test_two_commands_pull_at_once(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch, taken: int, together: int
) -> None:
    for number in range(5):
        commit(second, str(number))
    first.create()
    monkeypatch.setattr(remote_commits, "_TOGETHER", together)
    pulled = meanwhile(monkeypatch, RemoteObjects, "read_many", lambda: pull_some(first, taken))
    assert messages(first) == ["0", "1", "2", "3", "4"]
    assert pulled
    assert read(first) == "4"


def test_who_pulls_along_with_others_notices_a_commit_that_was_changed(
    url: str, first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("one", "two", "three"):
        commit(second, text)
    first.create()
    monkeypatch.setattr(remote_commits, "_TOGETHER", 1)

    def pull_one_and_change_the_last() -> None:
        pull_some(first, 1)
        objects = open_remote(url)
        last = max(objects.names("workspaces/main/commits"))
        objects.write(last, [objects.read(last).replace(b"three", b"3")])

    meanwhile(monkeypatch, RemoteObjects, "read_many", pull_one_and_change_the_last)
    with pytest.raises(Corrupt, match="the commits of 'main' .* its payload was changed"):
        first.commits("main")


def test_two_commands_learn_of_a_fork_at_once(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(second, "one")
    commit(second, "two")
    second.fork("main", "1", "side")
    commit(second, "on the side", "side")
    first.create()
    learnt = meanwhile(monkeypatch, SqliteJournalStore, "fork_session", lambda: messages(again(first), "side"))
    assert messages(first, "side") == ["one", "on the side"]
    assert learnt
    assert messages(first) == ["one", "two"]


def test_a_fork_that_another_command_pulls_before_it_is_in_the_journal_is_done(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(first, "one")
    pulled = meanwhile(monkeypatch, SqliteJournalStore, "fork_session", lambda: messages(again(first), "side"))
    assert first.fork("main", "last", "side") is not None
    assert pulled
    assert commit(first, "on the side", "side") == 2
    assert messages(second, "side") == ["one", "on the side"]


def test_of_two_who_fork_to_one_name_one_does(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(first, "one")
    meanwhile(monkeypatch, RemoteCommits, "create_fork", lambda: second.fork("main", "last", "side"))
    with pytest.raises(Conflict, match="there is a workspace 'side' already; give another name"):
        first.fork("main", "last", "side")
    commit(second, "on the side", "side")
    assert messages(first, "side") == ["one", "on the side"]


def test_of_two_who_fork_the_time_before_the_first_commit_to_one_name_one_does(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(first, "one")
    meanwhile(monkeypatch, RemoteCommits, "ensure_session", lambda: second.fork("main", "last", "side"))
    with pytest.raises(Conflict, match="there is a workspace 'side' already"):
        first.fork("main", "0", "side")
    assert messages(first, "side") == messages(second, "side") == ["one"]


def test_a_workspace_that_is_forked_while_it_is_made_is_the_fork(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(first, "one")
    meanwhile(monkeypatch, RemoteCommits, "ensure_session", lambda: second.fork("main", "last", "side"))
    assert read(first, "side") == "one"
    assert commit(first, "two", "side") == 2
    assert messages(second, "side") == ["one", "two"]


# -- making ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["names", "create"])
def test_two_make_a_store_at_once(
    first: Repository, second: Repository, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    made = meanwhile(monkeypatch, RemoteObjects, step, lambda: commit(second, "one"))
    first.create()
    assert made
    assert messages(first) == ["one"]


def test_a_store_that_another_command_makes_and_commits_to_at_the_same_moment_is_not_lost(
    first: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = meanwhile(monkeypatch, StoreDirectory, "_check_unknown", lambda: commit(again(first), "one"))
    assert commit(first, "two") == 2
    assert made
    assert messages(first) == ["one", "two"]


def test_a_journal_that_another_command_is_making_knows_of_no_lost_store(
    first: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin() -> None:
        again(first).create()
        (first.directory / "journal.db").touch()

    made = meanwhile(monkeypatch, StoreDirectory, "_check_unknown", begin)
    assert commit(first, "one") == 1
    assert made


@pytest.mark.parametrize("step", ["names", "create"])
def test_a_store_that_a_newer_version_makes_at_the_same_moment_stays(
    url: str, first: Repository, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    objects = open_remote(url)
    meanwhile(monkeypatch, RemoteObjects, step, lambda: objects.write("format", [NEWER]))
    with pytest.raises(UnsupportedFormat, match="its format is 99, this version reads up to"):
        first.create()
    assert objects.read("format") == NEWER


def test_where_something_else_is_no_store_is_made(url: str, first: Repository) -> None:
    objects = open_remote(url)
    objects.write("else", [b"what is not ours"])
    with pytest.raises(InvalidInput, match="has something else in it"):
        first.create()
    assert objects.names("") == ["else"]


def test_a_folder_that_comes_to_be_while_it_is_listed_is_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_s3(tmp_path / "s3") as server:
        objects = open_remote(f"s3://{BUCKET}/{uuid4().hex}", server.options())
        filesystem = objects._filesystem
        real = filesystem._info
        asked = []

        async def info(path: str, **options: Any) -> Any:
            """Come after the listing, which was empty."""
            asked.append(path)
            await filesystem._pipe_file(f"{path}/main/session", b"{}")
            return await real(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(filesystem, "_info", info)
            assert objects.sizes("workspaces") == {}
        assert asked == [f"{objects._root}/workspaces"]
        assert objects.sizes("workspaces") == {"workspaces/main/session": 2}


def test_a_workspace_that_is_not_there_is_refused_with_the_names_of_all(first: Repository, second: Repository) -> None:
    commit(first, "one")
    commit(first, "two", "side")
    for asked in (
        second.commits,
        lambda name: second.commit(name, "message"),
        lambda name: second.fork(name, "1", "new"),
    ):
        with pytest.raises(NotFound, match="there is no workspace 'nope'; there is main, side$"):
            asked("nope")


def test_a_workspace_is_made_without_reading_the_others(first: Repository, second: Repository) -> None:
    commit(first, "one")
    commit(second, "two", "side")
    with closing(SqliteJournalStore(second.directory / "journal.db")) as journal:
        assert [session.name for session in journal.sessions()] == ["side"]
