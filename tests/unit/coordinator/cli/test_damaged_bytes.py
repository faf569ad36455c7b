"""Each file of a home that is truth, with one byte changed, or cut: ``verify`` says that it is damaged, and names it.

The table of docs/internals/home.md says which files these are. In the normal run some places of each file are damaged,
by a seed, and in the slow one all.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
from contextlib import closing, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.ident import from_raw
from chronicle.blobs.packs.pack_format import index_start, read_index, unpack_blob
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Corrupt
from chronicle.journal.chain import seal
from chronicle.journal.objects import ObjectName, new_object
from chronicle.journal.records import Commit, Draft, Snapshot
from coordinator.access.caller import Scope
from coordinator.access.quotas import Quota
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from coordinator.homes.sqlite.calls import SqliteCallRecords
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent, snapshot_body
from podium.testing import AgentHarness
from tests.unit.coordinator.cli.cli_home import HomeMaker
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.canonical import JsonObject

WHOLE_BYTES: Final = 4096
"""Of files up to this size each byte is damaged."""
SEEDED: Final = 1000
SAMPLE: Final = 4
"""Places in the normal run, for each file and damage."""
DAMAGES: Final = ("flipped", "cut", "zeroed")
TRUTH: Final = (
    "format",
    "journal.db",
    "journal.db-heads",
    "journal.db-sums",
    "blobs/format",
    "blobs/packs/one",
    "blobs/packs/merged",
    "access.db",
    "access.db-sums",
    "models.db",
    "models.db-sums",
)
DERIVED: Final = ("id", "local.key", "blobs/index/log", "blobs/index/segment", "blobs/condemned", "blobs/collected")


class Painter(BaseAgent):
    """Hands out an artifact, and tells another agent."""

    class State(DeltaState):
        _entity_type = "painter"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        (ctx.workspace / "large").write_bytes(random.Random(ctx.state.count).randbytes(100_000))
        await ctx.add_artifact("note.txt", f"note {ctx.state.count}")
        await ctx.tell("painter/other", {"text": "hello"})


async def paint(maker: HomeMaker) -> None:
    async with AgentHarness(Painter, store=maker.store, blobs=maker.blobs, clock=maker.clock) as painter:
        for _ in range(3):
            assert (await painter.send("go")).ok
        found = read_agent(maker.store, maker.blobs, painter.address)
        body = snapshot_body(found.turn, "painter", 1, found.state, found.tree)
        session = maker.store.session(str(painter.address))
        head = maker.store.head(session.main_branch_id)
        snapshot = Snapshot(head.branch_id, head.seq, body)
        lease, now_ms = maker.store.lease(session.session_id), maker.clock.now_ms()
        assert lease is not None
        drafts = [Draft(maker.ids.event(now_ms), "note", None, found.turn, now_ms)]
        maker.store.commit(Commit(session.session_id, head, seal(head, drafts), lease.epoch, snapshot=snapshot))


def add_client(maker: HomeMaker) -> None:
    """Make a session of a client, with an event and an artifact."""
    now_ms, ids, store = maker.clock.now_ms(), maker.ids, maker.store
    session = store.ensure_session("chat", ids.session(now_ms), ids.branch(now_ms), now_ms, "acme")
    head = store.head(session.main_branch_id)
    said = Draft(ids.event(now_ms), "note", {"text": "said"}, 0, now_ms)
    store.commit(Commit(session.session_id, head, seal(head, [said]), None))
    body: JsonObject = {"text": "x" * 70_000}
    store.put_object(new_object(maker.blobs, ObjectName("artifact", "art_1", "acme"), now_ms, body, content=b"art"))


def make_home(path: Path) -> Path:
    """Make a home with something of everything in it, closed in order; some packs are merged, and some are not."""
    maker = HomeMaker(path)
    agent = maker.agent("counter/a")
    for number in range(17):
        agent.turn(f"message {number}", {"out.txt": f"{number}\n".encode() * 30, f"files/{number}": b"x" * number})
    maker.close()
    assert main(["gc", "--now", "--home", str(path)]) == ExitCode.OK
    maker.store, maker.blobs = Home(path).journal(), Home(path).blobs()
    agent.turn("afterwards", {"out.txt": b"last\n"})
    agent.fail("bad")
    agent.admit("waits")
    agent.sleep()
    add_client(maker)
    asyncio.run(paint(maker))
    maker.close()
    with closing(SqliteKeyRecords(path, Home(path).id, maker.ids)) as keys:
        _, text = keys.create("local", "default", [Scope.ADMIN], maker.clock.now_ms())
        keys.set_quotas({"acme": Quota(agents=3)})
    (path / "local.key").write_text(text + "\n")
    keep(path, record("call_1"), record("call_2", cost=None))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that each case damages and mends."""
    return make_home(tmp_path_factory.mktemp("homes") / "home")


def path_of(home: Path, name: str) -> Path:
    """Return a file by the name that it has in this module: names of packs and segments are random."""
    packs = sorted((home / "blobs" / "packs").rglob("*/*"))
    match name:
        case "blobs/packs/merged":
            return next(pack for pack in packs if pack.read_bytes()[7] == 2)
        case "blobs/packs/one":
            return max((pack for pack in packs if pack.read_bytes()[7] == 1), key=lambda pack: pack.stat().st_size)
        case "blobs/index/segment":
            return next((home / "blobs" / "index").glob("*.idx"))
    return home / name


def places(name: str, whole: bytes, *, sample: bool) -> list[int]:
    """Return the offsets to damage."""
    if len(whole) <= WHOLE_BYTES:
        found = list(range(len(whole)))
    else:
        edges = set(fields_of(name, whole))
        found = sorted(edges | set(random.Random(name).sample(range(len(whole)), SEEDED)))
    return sorted(random.Random(name).sample(found, min(SAMPLE, len(found)))) if sample else found


def fields_of(name: str, whole: bytes) -> Iterator[int]:
    """Yield the first, a middle, and the last byte of each field of a large file."""
    bounds = [0, len(whole)]
    if name.startswith("blobs/packs/"):  # docs/internals/trees.md
        trailer = len(whole) - 36
        index = int.from_bytes(whole[trailer : trailer + 8], "big")
        entries = range(index, trailer, 49)
        bounds += [7, 8, index, trailer, trailer + 8, trailer + 12, trailer + 28, trailer + 35]
        bounds += [at + part for at in entries for part in (0, 32, 40, 44, 48)]
        bounds += [int.from_bytes(whole[at + 32 : at + 40], "big") for at in entries]
    elif name.endswith(".db"):  # the fields of SQLite's header, and the pages
        bounds += [16, 18, 19, 20, 21, 22, 23, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72, 92, 96, 100]
        bounds += range(0, len(whole), int.from_bytes(whole[16:18], "big"))
    else:  # lines of JSON
        bounds += [found.start() for found in re.finditer(rb'[":,\n]', whole)]
    bounds = sorted(set(bounds))
    for start, end in pairwise(bounds):
        yield from (start, (start + end) // 2, end - 1)


def damaged(whole: bytes, damage: str, at: int) -> bytes:
    match damage:
        case "cut":
            return whole[:at]
        case "zeroed":
            return whole[:at] + b"\0" + whole[at + 1 :]
    return whole[:at] + bytes((whole[at] ^ random.Random(at).randrange(1, 256),)) + whole[at + 1 :]


def each_damage(home: Path, name: str, damage: str, *, sample: bool) -> Iterator[int]:
    """Damage one place after the other, each in a file that is otherwise as it was written."""
    path = path_of(home, name)
    whole = path.read_bytes()
    path.chmod(0o600)
    try:
        for at in places(name, whole, sample=sample):
            if damaged(whole, damage, at) != whole:
                path.write_bytes(damaged(whole, damage, at))
                yield at
    finally:
        path.write_bytes(whole)


def test_the_home_is_good_and_has_everything(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(path_of(home, name).stat().st_size for name in (*TRUTH, *DERIVED))
    assert main(["verify", "--home", str(home)]) == ExitCode.OK
    said = capsys.readouterr().out
    assert "objects: 2 blobs: good" in said
    assert "no damage was found" in said


def gives_the_same_blobs(pack: Path, at: int) -> bool:
    """Whether a changed byte is one that zstd does not use: some bits of a frame have no effect on its content."""
    data = pack.read_bytes()
    entries = read_index(pack.name, data[index_start(pack.name, len(data), data) :]).entries
    here = [entry for entry in entries if entry.offset <= at < entry.offset + entry.stored]
    return bool(here) and all(
        blob_id(unpack_blob(pack.name, entry, data[entry.offset : entry.offset + entry.stored]))
        == from_raw(entry.raw_id)
        for entry in here
    )


def check_truth(home: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str], *, sample: bool) -> None:
    path = path_of(home, name)
    for at in each_damage(home, name, damage, sample=sample):
        code = main(["verify", "--home", str(home)])
        said = "".join(capsys.readouterr())
        if code == ExitCode.OK and name.startswith("blobs/packs/") and gives_the_same_blobs(path, at):
            continue
        newer = f"has format {path.read_bytes()[at : at + 1].decode('latin-1')}" if damage == "flipped" else "-"
        assert code == ExitCode.DAMAGED or (code == ExitCode.HOME_TOO_NEW and newer in said), (at, code, said)
        assert path.name in said or path.name.removesuffix("-sums") in said, (at, said)
    assert main(["verify", "--home", str(home)]) == ExitCode.OK


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", TRUTH)
def test_damage_of_truth_is_found(home: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_truth(home, name, damage, capsys, sample=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("caplog")  # a damaged snapshot is skipped with a warning
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", TRUTH)
def test_damage_of_every_byte_of_truth_is_found(
    home: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_truth(home, name, damage, capsys, sample=False)


def check_derived(home: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str], *, sample: bool) -> None:
    for at in each_damage(home, name, damage, sample=sample):
        code = main(["verify", "--home", str(home)])
        said = "".join(capsys.readouterr())
        if code == ExitCode.OK:
            assert main(["cat", "counter/a", "out.txt", "--home", str(home)]) == ExitCode.OK
            assert capsys.readouterr().out == "last\n", at
        else:
            assert code == ExitCode.DAMAGED or (code == ExitCode.HOME_TOO_NEW and "has format" in said), (
                at,
                code,
                said,
            )
            assert path_of(home, name).name in said, (at, said)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", DERIVED)
def test_what_is_derived_gives_the_right_answer_or_is_damaged(
    home: Path, name: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(home, tmp_path / "home", symlinks=True)  # what is made anew stays different
    check_derived(tmp_path / "home", name, damage, capsys, sample=True)


def test_a_cut_tail_of_any_pack_is_found(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The index and the frame of a pack; also of one from which nothing is read."""
    copy = tmp_path / "home"
    shutil.copytree(home, copy)
    with closing(PackBlobStore(f"file://{copy / 'blobs'}")) as blobs:
        blobs.put({blob_id(b"garbage"): b"garbage"})
        garbage = blobs.pack_of(blob_id(b"garbage"))
    for pack in sorted((copy / "blobs" / "packs").rglob("*/*")):
        whole = pack.read_bytes()
        pack.chmod(0o600)
        pack.write_bytes(whole[:-20])
        assert main(["verify", "--home", str(copy)]) == ExitCode.DAMAGED
        said = capsys.readouterr().out
        assert f"pack {pack.name} is cut short or damaged" in said
        assert pack.name != garbage or "\nblobs: BAD" in said
        pack.write_bytes(whole)
    assert main(["verify", "--home", str(copy)]) == ExitCode.OK


def test_another_id_than_that_of_the_keys_is_damage(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "home" / "id").write_text("abcdefghijkl\n")
    assert main(["verify", "--home", str(tmp_path / "home")]) == ExitCode.DAMAGED
    assert "id: BAD: no key of the home was made with it" in capsys.readouterr().out


def open_it(home: Path, name: str, refused: str | None) -> None:
    """Open and close a database as a process that writes to it does."""
    with pytest.raises(Corrupt, match=re.escape(refused)) if refused is not None else nullcontext():
        (SqliteKeyRecords(home, "home1") if name == "access.db" else SqliteCallRecords(home)).close()


@pytest.mark.parametrize("name", ["access.db", "models.db"])
def test_a_database_that_was_changed_or_lost_is_not_written_to(home: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "home"
    shutil.copytree(home, copy)
    (copy / name).unlink()
    open_it(copy, name, "it is gone; put it back from a backup")
    shutil.copy(home / name, copy / name)
    with closing(sqlite3.connect(copy / name)) as db:
        db.execute(f"DELETE FROM {'key' if name == 'access.db' else 'call'}")
        db.commit()
    open_it(copy, name, f"remove {name}-sums")
    (copy / f"{name}-sums").unlink()
    open_it(copy, name, None)
    assert (copy / f"{name}-sums").exists()
