"""What was written on top of a commit that is not the last any more is kept in a workspace of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.repository import Repository, commit_writer
from chronicle.workspace.api.workspace import open_api_workspace

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.workspace.port import LayerSpec, TreeRef

HELD = "what main held when others had gone on"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "store")
    repository.create()
    return repository


def commit(repository: Repository, workspace: str, text: str) -> None:
    with repository.used(workspace) as opened:
        opened.write("a", text.encode())
    repository.commit(workspace, text)


def spec_of(repository: Repository, workspace: str) -> LayerSpec:
    with repository.journal(workspace) as journal:
        return commit_writer.spec_of(repository, journal, commit_writer.ensure_session(repository, journal, workspace))


def write_elsewhere(repository: Repository, workspace: str, elsewhere: Path, text: str) -> TreeRef:
    """Return what a node holds that has written on top of what is the last commit now."""
    spec = replace(spec_of(repository, workspace), layers=elsewhere)
    with repository.blobs() as blobs, open_api_workspace(spec, blobs) as opened:
        opened.write("a", text.encode())
        return opened.seal()


def keep(repository: Repository, workspace: str, recovered: TreeRef) -> int:
    """Keep it, and return the turn that begins then."""
    begun: list[int] = []
    commit_writer.keep_recovered(repository, spec_of(repository, workspace), recovered, begun.append)
    (turn,) = begun
    return turn


def logs(repository: Repository, workspace: str) -> list[list[str]]:
    """Return the messages of the workspaces that were kept of one."""
    kept = [name for name in repository.workspaces() if name.startswith(f"{workspace[:100]}") and ".kept-" in name]
    return sorted([commit.message for commit in repository.commits(name)] for name in kept)


@pytest.mark.usefixtures("caplog")
def test_it_goes_on_from_the_commit_that_it_was_written_on(repository: Repository, tmp_path: Path) -> None:
    commit(repository, "main", "base")
    held = write_elsewhere(repository, "main", tmp_path / "elsewhere", "held")
    commit(repository, "main", "second")
    assert keep(repository, "main", held) == 3
    assert logs(repository, "main") == [["base", HELD]]
    (kept,) = set(repository.workspaces()) - {"main"}
    commit(repository, kept, "gone on")
    with repository.opened(kept) as opened:
        assert [item.turn for item in opened.history("a")] == [1, 2, 3]
    keep(repository, "main", held)  # the process that kept it was killed before it could report that
    assert logs(repository, "main") == [["base", HELD, "gone on"]]


@pytest.mark.usefixtures("caplog")
def test_the_same_files_on_other_commits_are_kept_apart(repository: Repository, tmp_path: Path) -> None:
    for number, message in enumerate(["base", "second"]):
        commit(repository, "main", message)
        held = write_elsewhere(repository, "main", tmp_path / str(number), "the same")
        commit(repository, "main", "overtakes")
        keep(repository, "main", held)
    assert logs(repository, "main") == [["base", "overtakes", "second", HELD], ["base", HELD]]


@pytest.mark.usefixtures("caplog")
def test_what_was_written_before_the_first_commit_is_kept(repository: Repository, tmp_path: Path) -> None:
    held = write_elsewhere(repository, "main", tmp_path / "elsewhere", "held")
    commit(repository, "main", "first")
    keep(repository, "main", held)
    assert logs(repository, "main") == [[HELD]]


@pytest.mark.parametrize("workspace", ["main", "fork"])
def test_what_was_committed_itself_is_nothing_to_keep(
    repository: Repository, caplog: pytest.LogCaptureFixture, workspace: str
) -> None:
    commit(repository, "main", "base")
    commit(repository, "main", "second")
    repository.fork("main", "last", "fork")
    commit(repository, workspace, "third")
    for done in repository.commits(workspace):
        assert keep(repository, workspace, done.ref) == 4, "nobody is told again"
    assert repository.workspaces() == ["fork", "main"]
    assert caplog.text == ""


@pytest.mark.usefixtures("caplog")
def test_what_a_workspace_of_the_longest_name_held_can_be_used(repository: Repository, tmp_path: Path) -> None:
    name = "w" * 128
    commit(repository, name, "base")
    held = write_elsewhere(repository, name, tmp_path / "elsewhere", "held")
    commit(repository, name, "second")
    keep(repository, name, held)
    (kept,) = set(repository.workspaces()) - {name}
    commit(repository, kept, "gone on")
    assert [item.message for item in repository.commits(kept)][-1] == "gone on"
