"""A store at an S3 URL: mounted, committed to and opened from several nodes, each with its own state and cache."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from chronicle.blobs.media.fsspec_objects import open_remote
from chronicle.cli import ExitCode, main
from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import mountinfo
from chronicle.repository import Repository, commit_writer
from tests.faulty_proxy import FaultyProxy, running_proxy
from tests.fuse.conftest import end_service
from tests.s3_server import BUCKET, S3Server, point_at

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = random.Random(3).randbytes(8_000_000)
MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[6_000_000:6_000_100] = b"y" * 100
    mapped.flush()
"""
"""By another process: one that waits for a page holds up its own threads, of which the store's proxy is one."""


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with running_proxy(s3.port) as running:
        yield running


class Node:
    """A machine: what it has of the store, and the command on it."""

    def __init__(
        self, url: str, directory: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.url = url
        self.directory = directory
        self.mountpoint = directory / "mnt"
        self._patch = patch
        self._capture = capture

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        self._patch.setenv("CHRONICLE_STATE_DIR", str(self.directory / "state"))
        self._patch.setenv("CHRONICLE_CACHE_DIR", str(self.directory / "cache"))
        self._capture.readouterr()
        found = main([str(argument) for argument in arguments])
        captured = self._capture.readouterr()
        assert found == code, captured.err
        return captured.out if code == 0 else captured.err

    def on_store(self, *arguments: str | Path, code: int = 0) -> str:
        return self(*arguments, "--store", self.url, code=code)

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self.on_store(*arguments, "--json"))

    def mount(self, workspace: str = "main") -> Path:
        mountpoint = self.mountpoint if workspace == "main" else self.directory / workspace
        self("mount", self.url, mountpoint, "-w", workspace)
        return mountpoint

    def end(self) -> None:
        self._patch.setenv("CHRONICLE_STATE_DIR", str(self.directory / "state"))
        end_service(Repository.at(self.url).directory / "run" / "zygote.sock", self.directory)


@pytest.fixture
def nodes(
    proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[list[Node]]:
    point_at(monkeypatch, proxy.endpoint, tmp_path / "cache")
    url = f"s3://{BUCKET}/{uuid4().hex}"
    made = [Node(url, tmp_path / name, monkeypatch, capsys) for name in ("a", "b", "c")]
    yield made
    for node in made:
        node.end()


def fill(root: Path) -> None:
    (root / "sub").mkdir()
    for number in range(60):
        (root / "sub" / f"{number}.txt").write_text(f"{number}\n" * 100)
    (root / "large").write_bytes(LARGE)


def read_bytes(proxy: FaultyProxy) -> int:
    return sum(item.answered_bytes for item in proxy.reads())


def test_another_node_opens_what_one_has_committed(nodes: list[Node], proxy: FaultyProxy) -> None:
    first, second, third = nodes
    fill(first.mount())
    assert first.on_store("commit", "-m", "one").startswith("commit 1 ")
    assert [item["message"] for item in second.json("log")] == ["one"]
    before = read_bytes(proxy)
    root = second.mount()
    assert sorted(path.name for path in root.iterdir()) == ["large", "sub"]
    assert len(list((root / "sub").iterdir())) == 60
    assert (root / "large").stat().st_size == len(LARGE)
    assert (root / "sub" / "7.txt").stat().st_size == 200
    assert read_bytes(proxy) - before < 400_000, "trees and an index, no content"
    before = read_bytes(proxy)
    with (root / "large").open("rb") as file:
        file.seek(4_000_000)
        assert file.read(4_096) == LARGE[4_000_000:4_004_096]
    assert 4_096 <= read_bytes(proxy) - before < 1_000_000, "a chunk or two, and the list"
    assert (root / "sub" / "7.txt").read_text() == "7\n" * 100
    assert (root / "large").read_bytes() == LARGE
    assert first.on_store("cat", "sub/8.txt") == "8\n" * 100
    (root / "sub" / "8.txt").write_text("changed")
    assert second.on_store("commit", "-m", "two").startswith("commit 2 ")
    assert [item["message"] for item in first.json("log")] == ["one", "two"]
    assert third.on_store("cat", "sub/8.txt") == "changed"
    assert third.on_store("cat", "sub/8.txt@1") == "8\n" * 100
    assert third.json("verify")[0]["problem"] is None
    third("checkout", f"{third.url}@1", third.directory / "out")
    assert (third.directory / "out" / "large").read_bytes() == LARGE
    assert (third.directory / "out" / "sub" / "8.txt").read_text() == "8\n" * 100
    stats = third.json("stats")
    assert stats["files"] == 61
    assert len(LARGE) < stats["stored_bytes"] < 1.1 * len(LARGE)


def test_another_node_changes_a_large_file_without_fetching_it(nodes: list[Node], proxy: FaultyProxy) -> None:
    first, second, third = nodes
    fill(first.mount())
    first.on_store("commit", "-m", "one")
    root = second.mount()
    expected = bytearray(LARGE)
    before = read_bytes(proxy)
    with (root / "large").open("r+b") as file:
        file.seek(4_000_000)
        file.write(b"x" * 4_096)
        file.flush()
        os.fsync(file.fileno())
    expected[4_000_000:4_004_096] = b"x" * 4_096
    assert read_bytes(proxy) - before < 100_000, "where it is, and none of it"
    subprocess.run([sys.executable, "-c", MAPS, root / "large"], check=True, timeout=60)
    expected[6_000_000:6_000_100] = b"y" * 100
    with (root / "large").open("rb") as file:
        file.seek(5_990_000)
        assert file.read(20_000) == expected[5_990_000:6_010_000]
    assert read_bytes(proxy) - before < 1_500_000, (
        "the pages, what the kernel reads with them, and what a version needs"
    )
    second.on_store("commit", "-m", "two")
    assert read_bytes(proxy) - before < 4_000_000, "what is around the changes"
    assert (root / "large").read_bytes() == expected
    with (root / "large").open("r+b") as file:
        file.truncate(5_000_000)
        file.seek(5_500_000)
        file.write(b"end")
    expected[5_000_000:] = bytes(500_000) + b"end"
    assert (root / "large").read_bytes() == expected
    second.on_store("commit", "-m", "three")
    assert (third.mount() / "large").read_bytes() == expected
    third("checkout", f"{third.url}@1", third.directory / "out")
    assert (third.directory / "out" / "large").read_bytes() == LARGE
    assert third.json("verify")[0]["problem"] is None


def test_what_was_fetched_is_read_again_without_the_store(nodes: list[Node], proxy: FaultyProxy) -> None:
    first, second, _ = nodes
    fill(first.mount())
    first.on_store("commit", "-m", "one")
    assert (second.mount() / "large").read_bytes() == LARGE
    second("unmount", second.mountpoint)
    before = len(proxy.reads())
    assert (second.mount() / "large").read_bytes() == LARGE
    assert len(proxy.reads()) == before


def test_of_two_who_commit_one_is_told_and_loses_nothing(
    nodes: list[Node], proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = nodes
    (first.mount() / "a").write_text("base")
    first.on_store("commit", "-m", "base")
    root = second.mount()
    (root / "a").write_text("second's")
    (first.mountpoint / "a").write_text("first's")
    (first.mountpoint / "new").write_text("more of first's")
    second.on_store("commit", "-m", "second")
    assert "another node has committed" in first.on_store("commit", "-m", "first", code=ExitCode.CONFLICT)
    assert (first.mountpoint / "a").read_text() == "first's"
    first("unmount", first.mountpoint)
    assert (first.mount() / "a").read_text() == "second's"
    (kept,) = [name for name in Repository.at(first.url).workspaces() if name.startswith("main.kept-")]
    assert kept in caplog.text
    assert third("cat", "a", "--store", first.url, "-w", kept) == "first's"
    assert third("cat", "new", "--store", first.url, "-w", kept) == "more of first's"
    assert [item["message"] for item in third.json("log", "-w", kept)] == [
        "base",
        "what main held when others had gone on",
    ]
    root = third.mount(kept)
    (root / "a").write_text("gone on with")
    third.on_store("commit", "-m", "gone on", "-w", kept)
    then = [(root / ".chronicle" / "turn" / str(turn) / "a").read_text() for turn in (1, 2, 3)]
    assert then == ["base", "first's", "gone on with"]
    assert [row["turn"] for row in third.json("history", "a", "-w", kept)] == [1, 2, 3]
    (first.mountpoint / "a").write_text("third")
    first.on_store("commit", "-m", "third")
    assert [item["message"] for item in third.json("log")] == ["base", "second", "third"]


def overtaken(first: Node, second: Node) -> None:
    """Let a node have written what is on top of a commit that is not the last any more, and have nothing mounted."""
    (first.mount() / "a").write_text("base")
    first.on_store("commit", "-m", "base")
    (second.mount() / "a").write_text("second's")
    (first.mountpoint / "a").write_text("first's")
    second.on_store("commit", "-m", "second")
    first("unmount", first.mountpoint)


def kept_by(node: Node) -> list[str]:
    return [name for name in Repository.at(node.url).workspaces() if name.startswith("main.kept-")]


def test_a_commit_keeps_what_a_mount_was_killed_before_it_kept(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = nodes
    overtaken(first, second)
    with monkeypatch.context() as patch:
        patch.setattr(commit_writer, "keep_recovered", lambda *_: None)  # as if it had been killed just before
        root = first.mount()
    assert (root / "a").read_text() == "second's"
    assert kept_by(first) == []
    (root / "a").write_text("third")
    first.on_store("commit", "-m", "third")
    (kept,) = kept_by(first)
    assert kept in caplog.text
    assert third("cat", "a", "--store", first.url, "-w", kept) == "first's"
    assert [item["message"] for item in third.json("log")] == ["base", "second", "third"]


def test_several_commands_keep_what_a_mount_did_not_once(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = nodes
    overtaken(first, second)
    with monkeypatch.context() as patch:
        patch.setattr(commit_writer, "keep_recovered", lambda *_: None)
        first.mount()

    def look() -> list[str]:
        with Repository.at(first.url).opened("main") as opened:
            return [item.op for item in opened.history("a")]

    with ThreadPoolExecutor() as pool:
        found = [future.result(60) for future in [pool.submit(look) for _ in range(3)]]
    assert found == [["write", "write"]] * 3
    (kept,) = kept_by(first)
    assert caplog.text.count(kept) == 1
    (first.mountpoint / "a").write_text("third")
    assert first.on_store("commit", "-m", "third").startswith("commit 3 ")
    assert [row["turn"] for row in third.json("history", "a")] == [1, 2, 3]


def test_a_mount_that_cannot_keep_what_it_found_is_taken_back(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = nodes
    overtaken(first, second)

    def is_away(*_: object) -> None:
        raise Unavailable("the store went away just now")

    with monkeypatch.context() as patch:
        patch.setattr(commit_writer, "put_commit", is_away)
        assert "just now" in first("mount", first.url, first.mountpoint, code=ExitCode.UNAVAILABLE)
    assert not mountinfo.is_mounted(first.mountpoint)
    assert (first.mount() / "a").read_text() == "second's"
    (kept,) = kept_by(first)
    assert kept in caplog.text
    assert third("cat", "a", "--store", first.url, "-w", kept) == "first's"


def test_a_store_that_is_away_fails_reads_and_nothing_else(nodes: list[Node], proxy: FaultyProxy) -> None:
    first, second, third = nodes
    fill(first.mount())
    first.on_store("commit", "-m", "one")
    root = second.mount()
    assert (root / "sub" / "1.txt").read_text() == "1\n" * 100
    proxy.fail("reset")
    with pytest.raises(OSError, match="Input/output error"):
        (root / "large").read_bytes()
    (root / "new").write_text("written while it was away")
    assert (root / "sub" / "1.txt").read_text() == "1\n" * 100
    message = second.on_store("commit", "-m", "away", code=ExitCode.UNAVAILABLE)
    assert f"{first.url} does not answer" in message
    assert "check the network" in message
    proxy.fail("none", 0)
    assert (root / "large").read_bytes() == LARGE
    assert second.on_store("commit", "-m", "back").startswith("commit 2 ")
    assert third.on_store("cat", "new") == "written while it was away"


@pytest.mark.parametrize("fault", ["error", "close"])
def test_a_commit_outlasts_an_outage(
    nodes: list[Node], proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    """Nine attempts fail, with the pauses of a store that is away for some ten seconds."""
    monkeypatch.setenv("CHRONICLE_STORE_PATIENCE_S", "600")
    first, second, _ = nodes
    (first.mount() / "a").write_text("one")
    proxy.status = 500, "Internal Server Error"
    proxy.fail(fault, 9)
    assert first.on_store("commit", "-m", "one").startswith("commit 1 ")
    assert proxy.failures == 0
    assert second.on_store("cat", "a") == "one"


def test_there_is_no_store(nodes: list[Node]) -> None:
    node = nodes[0]
    assert "; `chronicle mount` makes one" in node.on_store("log", code=ExitCode.NOT_FOUND)
    assert not list(node.directory.rglob("journal.db"))
    assert "nosuch" in node("log", "--store", "nosuch://x", code=ExitCode.USAGE)


def test_a_commit_that_was_changed_is_noticed(nodes: list[Node], s3: S3Server) -> None:
    first, second, _ = nodes
    (first.mount() / "a").write_text("one")
    first.on_store("commit", "-m", "one")
    objects = open_remote(first.url, s3.options())
    (name,) = objects.names("workspaces/main/commits")
    objects.write(name, [objects.read(name).replace(b"one", b"two")])
    assert "payload was changed" in second.on_store("log", code=ExitCode.DAMAGED)


def test_a_fork_is_known_on_other_nodes(nodes: list[Node]) -> None:
    first, second, third = nodes
    (first.mount() / "a").write_text("one")
    first.on_store("commit", "-m", "one")
    (first.mountpoint / "a").write_text("two")
    first.on_store("commit", "-m", "two")
    assert second.on_store("fork", "side", "@1") == "side continues main@1\n"
    assert "already" in first.on_store("fork", "side", code=ExitCode.CONFLICT)
    assert [item["message"] for item in third.json("log", "-w", "side")] == ["one"]
    assert third.on_store("cat", "a", "-w", "side") == "one"
    root = third.directory / "side"
    third("mount", third.url, root, "-w", "side")
    (root / "a").write_text("on the side")
    assert third.json("commit", "-m", "side", "-w", "side")["turn"] == 2
    third("unmount", root)
    assert [item["message"] for item in first.json("log", "-w", "side")] == ["one", "side"]
    assert first.on_store("cat", "a@2") == "two"
    assert first.json("fork", "again", "-w", "side")["from"] == {"workspace": "side", "turn": 2}
    assert second.on_store("cat", "a", "-w", "again") == "on the side"
    assert [check["problem"] for check in second.json("verify")] == [None] * 3
    assert "; `chronicle gc --dry-run` shows what" in second.on_store("gc", code=ExitCode.CONFLICT)
    assert second.json("gc", "--dry-run")["packs"] > 0


def test_a_store_that_was_emptied_is_not_made_anew(nodes: list[Node], s3: S3Server) -> None:
    node, other, _ = nodes
    root = node.mount()
    (root / "a").write_text("one")
    node.on_store("commit", "-m", "first")
    node.on_store("fork", "forked")
    (root / "b").write_text("not committed")
    objects = open_remote(node.url, s3.options())
    kept = {name: objects.read(name) for name in objects.names("")}
    for name in kept:
        objects.delete(name)

    def refused(*arguments: str | Path) -> None:
        said = node(*arguments, code=ExitCode.DAMAGED)
        known = "the workspace 'forked'" if "forked" in arguments else "commit 1 of the workspace 'main'"
        assert "lacks what this node knows: " in said
        assert known in said
        assert "may have been emptied, or the endpoint be a wrong one" in said
        assert str(node.directory / "state") in said
        assert objects.names("") == []

    refused("commit", "-m", "second", "--store", node.url)
    node("unmount", root)
    refused("mount", node.url, root)
    refused("mount", node.url, root, "-w", "new")
    refused("log", "--store", node.url)
    refused("commit", "-m", "second", "--store", node.url)
    refused("fork", "another", "--store", node.url)
    refused("cat", "a", "--store", node.url)
    refused("verify", "--store", node.url)
    refused("checkout", node.url, node.directory / "out")
    refused("log", "-w", "forked", "--store", node.url)
    objects.write("format", [kept["format"]])
    assert "the workspace 'forked', commit 1 of the workspace 'main'" in node(
        "mount", node.url, root, "-w", "new", code=ExitCode.DAMAGED
    )
    assert objects.names("") == ["format"]
    objects.delete("format")
    next(node.directory.glob("state/*/journal.db")).unlink()  # what was written stands on commits all the same
    assert "lacks the commits" in node("mount", node.url, root, code=ExitCode.DAMAGED)
    assert objects.names("") == []
    assert "there is no store" in other.on_store("log", code=ExitCode.NOT_FOUND)
    for name, data in kept.items():
        objects.write(name, [data])
    assert (node.mount() / "b").read_text() == "not committed"
    assert node.json("commit", "-m", "second")["turn"] == 2
    assert len(other.json("log")) == 2


def test_a_store_whose_blobs_are_gone_mounts_nothing(nodes: list[Node], s3: S3Server) -> None:
    node, other, _ = nodes
    root = node.mount()
    (root / "a").write_text("one")
    node.on_store("commit", "-m", "first")
    node("unmount", root)
    objects = open_remote(node.url, s3.options())
    for name in objects.names("blobs"):
        objects.delete(name)
    left = sorted(objects.names(""))
    said = other("mount", node.url, other.mountpoint, code=ExitCode.DAMAGED)
    assert "workspace 'main' is damaged: no blob" in said
    assert "; `chronicle verify` says which commits are damaged" in said
    assert not mountinfo.is_mounted(other.mountpoint)
    assert "is damaged" in other("checkout", node.url, other.directory / "out", code=ExitCode.DAMAGED)
    other.on_store("verify", code=ExitCode.DAMAGED)
    assert sorted(objects.names("")) == left


def test_who_waits_for_a_store_that_does_not_answer_is_told(nodes: list[Node], s3: S3Server) -> None:
    node = nodes[0]
    root = node.mount()
    (root / "a").write_text("one")
    node.on_store("commit", "-m", "first")
    told = rf"waiting for the store at {node.url}, which has not answered for \d+ s: attempt 1, gives up in \d+ s"
    run = "import sys; from chronicle.cli import main; sys.exit(main())"
    with s3.stopped():
        command = subprocess.Popen(
            [sys.executable, "-c", run, "log", "--json", "--store", node.url],
            env={**os.environ, "AWS_ENDPOINT_URL_S3": s3.endpoint},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert command.stderr is not None
        first = command.stderr.readline()  # not for good: it gives up
    out, rest = command.communicate(timeout=60)
    assert re.match(told, first)
    assert command.returncode == 0
    assert [item["message"] for item in json.loads(out)] == ["first"]
    assert all(line.startswith("waiting for the store at ") for line in rest.splitlines())
