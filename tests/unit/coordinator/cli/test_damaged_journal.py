"""A journal's file with a part of it lost or changed: ``verify`` always finds it, and no command takes it for new."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from chronicle.ids import IdSource
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Snapshot
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent, snapshot_body
from podium.testing import AgentHarness
from tests.unit.coordinator.cli.cli_home import HomeMaker
from tests.unit.read_only import without_write_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK: Final = 4096
READING: Final = [["ps"], ["log", "counter/a"], ["state", "counter/a"], ["inbox", "counter/a"]]
TABLES: Final = ("session", "branch", "event", "catalogue", "inbox", "outbox", "snapshot", "snapshot_pack", "tombstone")
CHAINED: Final = ("branch", "event", "catalogue")


class Painter(BaseAgent):
    """Hands out an artifact, and tells another agent."""

    class State(DeltaState):
        _entity_type = "painter"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.add_artifact("note.txt", f"note {ctx.state.count}")
        await ctx.tell("painter/other", {"text": "hello"})


def make_home(path: Path) -> Path:
    """Make a small home with something of everything in it, closed in order."""
    maker = HomeMaker(path)
    agent = maker.agent("counter/a")
    for number in range(12):
        agent.turn(f"message {number}", {"out.txt": f"{number}\n".encode(), f"files/{number}": b"x" * number})
    agent.fail("bad")
    agent.admit("waits")
    agent.sleep()
    gone = maker.agent("counter/gone")
    gone.sleep()
    maker.store.delete_session(gone.session.session_id, maker.clock.now_ms())
    asyncio.run(paint(maker))
    maker.close()
    for arguments in (["fork", "counter/a@4", "b"], ["fork", "counter/b", "c"], ["rewind", "counter/c", "2"]):
        assert main([*arguments, "--home", str(path)]) == ExitCode.OK
    return path


async def paint(maker: HomeMaker) -> None:
    async with AgentHarness(Painter, store=maker.store, blobs=maker.blobs, clock=maker.clock) as painter:
        for _ in range(20):
            assert (await painter.send("go")).ok
        record = read_agent(maker.store, maker.blobs, painter.address)
        body = snapshot_body(record.turn, "painter", 1, record.state, record.tree)
        session = maker.store.session(str(painter.address))
        head = maker.store.head(session.main_branch_id)
        snapshot = Snapshot(head.branch_id, head.seq, body)
        lease, now_ms = maker.store.lease(session.session_id), maker.clock.now_ms()
        assert lease is not None
        drafts = [Draft(maker.ids.event(now_ms), "note", None, record.turn, now_ms)]
        maker.store.commit(Commit(session.session_id, head, seal(head, drafts), lease.epoch, snapshot=snapshot))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that nothing happened to."""
    return make_home(tmp_path_factory.mktemp("homes") / "home")


@pytest.fixture
def home(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return copied(sound, tmp_path / "home")


def copied(home: Path, to: Path) -> Path:
    shutil.copytree(home, to, symlinks=True)
    return to


def run(home: Path, *arguments: str) -> int:
    return main([*arguments, "--home", str(home)])


def contents(journal: Path) -> dict[str, Any] | None:
    """Return all rows by table, as SQLite reads them; ``None`` if it cannot."""
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro&immutable=1", uri=True)) as db:
            db.text_factory = bytes
            return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES}
    except (sqlite3.Error, UnicodeDecodeError):  # the latter for a message of SQLite that quotes a damaged schema
        return None


def zeroed(block: bytes) -> bytes:
    return bytes(len(block))


def first_flipped(block: bytes) -> bytes:
    return bytes((block[0] ^ 0x40,)) + block[1:]


def used_flipped(block: bytes) -> bytes:
    """Flip a bit in the middle of what is in use."""
    used = [at for at, byte in enumerate(block) if byte]
    at = used[len(used) // 2] if used else len(block) // 2
    return block[:at] + bytes((block[at] ^ 1,)) + block[at + 1 :]


def last_flipped(block: bytes) -> bytes:
    return block[:-1] + bytes((block[-1] ^ 0x80,))


DAMAGES: Final = [zeroed, first_flipped, used_flipped, last_flipped]


def each_damage(home: Path, damage: Callable[[bytes], bytes]) -> Iterator[int]:
    """Do one damage after the other to the journal's file, each to a file that is otherwise as it was written.

    Of the pages that nothing was written to yet, which are two thirds of the file and alike, the first and the last.
    """
    journal = home / "journal.db"
    whole = journal.read_bytes()
    blocks = {at: whole[at : at + BLOCK] for at in range(0, len(whole), BLOCK)}
    unused = [at for at, block in blocks.items() if not any(block)]
    for at, block in blocks.items():
        if damage(block) != block and at not in unused[1:-1]:
            journal.write_bytes(whole[:at] + damage(block) + whole[at + BLOCK :])
            yield at
    journal.write_bytes(whole)


def test_a_sound_home_is_good(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = contents(home / "journal.db")
    assert rows is not None
    assert all(rows[table] for table in TABLES), "there is something in each table"
    assert run(home, "verify") == ExitCode.OK
    for arguments in READING:
        assert run(home, *arguments) == ExitCode.OK
    capsys.readouterr()
    assert run(home, "verify", "--json") == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["journal"] is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_any_page_of_a_home_at_rest_is_found(
    home: Path,
    damage: Callable[[bytes], bytes],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,  # damaged snapshots are skipped with a warning
) -> None:
    for at in each_damage(home, damage):
        assert run(home, "verify") in (ExitCode.DAMAGED, ExitCode.HOME_TOO_NEW), at
        arguments = READING[at // BLOCK % len(READING)]
        assert run(home, *arguments) in (ExitCode.DAMAGED, ExitCode.HOME_TOO_NEW), (at, arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "no agents yet" not in said.err + said.out
        assert "journal.db" in said.err


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_a_home_that_was_not_closed_in_order(
    home: Path,
    damage: Callable[[bytes], bytes],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without the checksums: what is in the chains or belongs to SQLite's structure is found all the same."""
    (home / "journal.db-sums").unlink()
    before = contents(home / "journal.db")
    assert before is not None
    assert run(home, "verify") == ExitCode.OK
    for at in each_damage(home, damage):
        code = run(home, "verify")
        assert code in (ExitCode.OK, ExitCode.DAMAGED, ExitCode.HOME_TOO_NEW), at
        after = contents(home / "journal.db")
        if code == ExitCode.OK:
            assert after is not None, at
            assert all(after[table] == before[table] for table in CHAINED), at
            assert all(len(after[table]) == len(before[table]) for table in TABLES), at
        arguments = READING[at // BLOCK % len(READING)]
        assert run(home, *arguments) in (ExitCode.OK, ExitCode.DAMAGED, ExitCode.HOME_TOO_NEW), (at, arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "no agents yet" not in said.err + said.out


def test_damage_is_found_where_nothing_can_be_written(home: Path) -> None:
    journal = home / "journal.db"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: 3 * BLOCK] + bytes(BLOCK) + whole[4 * BLOCK :])

    def look() -> None:
        assert run(home, "verify") == ExitCode.DAMAGED
        assert run(home, "ps") == ExitCode.DAMAGED

    without_write_access(home, look)


@pytest.mark.parametrize("name", ["journal.db-sums", "journal.db-heads"])
def test_damage_of_what_is_kept_beside_is_damage(home: Path, name: str) -> None:
    path = home / name
    path.write_bytes(path.read_bytes()[:-20])
    assert run(home, "verify") == ExitCode.DAMAGED


@pytest.mark.parametrize("how", ["removed", "emptied", "header"])
def test_a_journal_that_is_lost_is_not_made_anew(home: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    journal = home / "journal.db"
    whole = journal.read_bytes()
    if how == "removed":
        journal.unlink()
    else:
        journal.write_bytes(b"" if how == "emptied" else bytes(BLOCK) + whole[BLOCK:])
    for arguments in (["ps"], ["verify"], ["state", "counter/a"], ["rewind", "counter/a", "1"], ["gc"]):
        assert run(home, *arguments) == ExitCode.DAMAGED, arguments
        assert "journal.db" in capsys.readouterr().err
    journal.write_bytes(whole)
    assert run(home, "verify") == ExitCode.OK


def test_a_cut_tail_is_found_by_what_was_kept(home: Path) -> None:
    """A write-ahead log that was damaged loses commits, and the rest is consistent."""
    before = (home / "journal.db").read_bytes()
    maker = HomeMaker(home)
    maker.ids = IdSource()
    agent = maker.agent("counter/late")
    agent.turn("one")
    agent.sleep()
    maker.close()
    (home / "journal.db-sums").unlink()
    assert run(home, "verify") == ExitCode.OK
    (home / "journal.db").write_bytes(before)
    assert run(home, "verify") == ExitCode.DAMAGED
    assert run(home, "state", "counter/late") == ExitCode.DAMAGED


def test_what_goes_in_order_is_not_missed(home: Path) -> None:
    for arguments in (
        ["delete", "counter/c", "--yes"],
        ["fold", "counter/b"],
        ["rewind", "counter/a", "1"],
        ["delete", "counter/b", "--yes"],
    ):
        heads = (home / "journal.db-heads").read_bytes()
        assert run(home, *arguments) == ExitCode.OK
        (home / "journal.db-heads").write_bytes(heads)  # as if it had not been closed in order
        (home / "journal.db-sums").unlink()
        assert run(home, "verify") == ExitCode.OK
        assert run(home, "ps") == ExitCode.OK


def test_a_home_with_files_of_agents_and_no_agent_is_not_new(tmp_path: Path) -> None:
    """It was never closed in order, so nothing beside the journal says what was in it."""
    maker = HomeMaker(tmp_path / "home")
    maker.close()
    assert run(maker.path, "ps") == ExitCode.OK
    (maker.path / "nodes" / "here" / "layers" / "counter-a").mkdir(parents=True)
    assert run(maker.path, "ps") == ExitCode.DAMAGED
    assert run(maker.path, "verify") == ExitCode.DAMAGED


def test_a_journal_that_was_changed_is_not_written_to(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(home / "journal.db")) as db:
        db.execute("UPDATE inbox SET body = ?", (b"{}",))
        db.commit()
    assert run(home, "fork", "counter/a", "d") == ExitCode.DAMAGED
    said = capsys.readouterr().err
    assert "journal.db-sums" in said
    assert said.endswith(f"; `podium verify` says what of {home / 'journal.db'} can be read\n")
    (home / "journal.db-sums").unlink()
    assert run(home, "fork", "counter/a", "d") == ExitCode.OK
    assert run(home, "verify") == ExitCode.OK


def test_an_open_home_has_no_checksums_and_is_read(home: Path) -> None:
    with closing(Home(home).journal()) as store:
        assert not (home / "journal.db-sums").exists()
        assert run(home, "verify") == ExitCode.OK
        assert run(home, "ps") == ExitCode.OK
        assert store.damage() is None
    assert (home / "journal.db-sums").exists()
