"""A podium home whose journal is in PostgreSQL, with its records beside it, and whose blobs are in an object store."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Corrupt, InvalidInput, NotFound, Unavailable
from chronicle.journal.opening import open_journal
from chronicle.testing.journal_contract import Writer
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec
from coordinator import migration
from coordinator.access.caller import Scope
from coordinator.cli.exits import ExitCode
from coordinator.home import Home, Identity
from coordinator.homes.identity import write_identity
from coordinator.homes.node_roots import publish_roots, roots_of
from coordinator.homes.opening import create_home, open_records, records_at
from coordinator.homes.postgres.records import PostgresHomeRecords
from coordinator.host.node.workspace_paths import WorkspacePaths
from coordinator.store.client import RemoteRoots
from coordinator.store.links import manager_of
from podium.errors import HomeError, HomeTooNew
from tests.contract.home_records import keep
from tests.contract.served_stores import serving
from tests.s3_server import BUCKET, S3Server, point_at
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def url_of(server: str, schema: str, password: str = "") -> str:
    """Return the URL of a schema of a server."""
    parts = conninfo_to_dict(server)
    user = f"{parts['user']}:{password}" if password else parts["user"]
    return f"postgresql://{user}@/{parts['dbname']}?host={quote(str(parts['host']))}&schema={schema}"


@pytest.fixture
def journal_url(server: str) -> str:
    return url_of(server, f"home_{uuid4().hex}")


@pytest.fixture
def blobs_url(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    return f"s3://{BUCKET}/{uuid4().hex}"


def test_its_journal_and_its_records_are_there(journal_url: str, blobs_url: str, tmp_path: Path) -> None:
    home = create_home(Home(tmp_path / "home"), blobs_url, journal_url)
    with closing(home.journal()) as store:
        session = Writer.on(store).session
    with closing(open_records(home).keys()) as keys:
        _, text = keys.create("n", "acme", [Scope.READ], 1)
    again = Home(tmp_path / "home").open()
    assert (again.journal_url, again.blobs_url, again.is_shared) == (journal_url, blobs_url, True)
    with closing(again.journal(create=False, read_only=True)) as store:
        assert list(store.sessions()) == [session]
    with closing(open_records(again).keys()) as keys:
        assert keys.find(text) is not None
    assert sorted(path.name for path in home.path.iterdir() if path.is_file()) == ["format", "id", "lock"]


def test_another_directory_is_of_the_same_home(journal_url: str, blobs_url: str, tmp_path: Path) -> None:
    one = create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    with closing(one.journal()) as store:
        session = Writer.on(store).session
    two = create_home(Home(tmp_path / "two"), journal_url=journal_url)
    assert (two.id, two.blobs_url) == (one.id, one.blobs_url)
    with closing(two.journal(create=False)) as store:
        assert list(store.sessions()) == [session]
    assert create_home(Home(tmp_path / "two"), blobs_url, journal_url).id == one.id


def test_a_password_is_kept_nowhere_and_used_if_it_is_given(
    server: str, blobs_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"home_{uuid4().hex}"
    given, shown = url_of(server, schema, "hidden"), url_of(server, schema)
    create_home(Home(tmp_path / "home"), blobs_url, given)
    assert json.loads((tmp_path / "home" / "format").read_text())["journal"] == shown
    assert not any(b"hidden" in path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert Home(tmp_path / "home").journal_url == shown
    monkeypatch.setenv("PODIUM_JOURNAL_URL", given)
    assert Home(tmp_path / "home").journal_url == given
    monkeypatch.setenv("PODIUM_JOURNAL_URL", url_of(server, "other", "hidden"))
    assert Home(tmp_path / "home").journal_url == shown


def test_a_directory_does_not_change_its_home(server: str, journal_url: str, blobs_url: str, tmp_path: Path) -> None:
    Home(tmp_path / "local").create()
    with pytest.raises(HomeError, match="keeps its journal in its own directory, not at postgresql://"):
        create_home(Home(tmp_path / "local"), blobs_url, journal_url)
    create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    other = url_of(server, f"home_{uuid4().hex}")
    with pytest.raises(HomeError, match="keeps its journal at postgresql://.*, not at postgresql://"):
        create_home(Home(tmp_path / "one"), blobs_url, other)
    with pytest.raises(HomeError, match=f"keeps its blobs at {blobs_url}, not at s3://"):
        create_home(Home(tmp_path / "one"), f"{blobs_url}-other", journal_url)
    for name in ("format", "lock"):  # its creation was cut short
        (tmp_path / "one" / name).unlink()
    create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    for name in ("format", "lock"):
        (tmp_path / "one" / name).unlink()
    with pytest.raises(HomeError, match="has the home .*, and .* is a directory of"):
        create_home(Home(tmp_path / "one"), f"{blobs_url}-new", _with_a_home(other, f"{blobs_url}-new", tmp_path))


def _with_a_home(journal_url: str, blobs_url: str, tmp_path: Path) -> str:
    """Give a database a home, and return its URL."""
    create_home(Home(tmp_path / "other"), blobs_url, journal_url)
    return journal_url


def test_two_homes_have_no_bucket_in_common(server: str, journal_url: str, blobs_url: str, tmp_path: Path) -> None:
    one = create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    other = url_of(server, f"home_{uuid4().hex}")
    with pytest.raises(HomeError, match=f"keeps the blobs of another home, {one.id}; give another URL"):
        create_home(Home(tmp_path / "two"), blobs_url, other)
    assert not _schemas(server, other), "the database would have a home without a bucket"
    assert create_home(Home(tmp_path / "two"), f"{blobs_url}-2", other).blobs_url == f"{blobs_url}-2"


def test_of_directories_that_make_a_home_at_once_all_are_of_it(
    journal_url: str, blobs_url: str, tmp_path: Path
) -> None:
    def make(number: int) -> str:
        return create_home(Home(tmp_path / str(number)), blobs_url, journal_url).id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(make, range(6)))) == 1


def test_what_cannot_be_used_makes_no_home(server: str, journal_url: str, blobs_url: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with pytest.raises(HomeError, match="keeps its blobs in an object store.*PODIUM_BLOBS_URL"):
        create_home(home, "", journal_url)
    assert not _schemas(server, journal_url)
    with pytest.raises(InvalidInput, match="'/a/path' is not the URL of a database server"):
        create_home(home, blobs_url, "/a/path")
    with pytest.raises(Unavailable, match="the records of a home in /nowhere/db schema chronicle_home"):
        create_home(home, blobs_url, "postgresql://u@/db?host=/nowhere")
    with pytest.raises(Unavailable, match=r"NoSuchBucket.*make its bucket first"):
        create_home(home, "s3://there-is-none/prefix", journal_url)
    assert not _schemas(server, journal_url), "the database takes the right bucket later"
    assert not (tmp_path / "home" / "format").exists()
    schema = f"home_{uuid4().hex}"
    _ = _with_a_home(url_of(server, schema), blobs_url, tmp_path)
    newer = json.dumps({"format": 2, "id": "abcdefgh2345", "blobs": blobs_url}).encode()
    with psycopg.connect(server, autocommit=True) as other:
        other.execute(f"UPDATE {schema}_home.document SET data = %s WHERE name = 'home'", (newer,))
    with pytest.raises(HomeTooNew, match="has format 2, this podium reads up to 1"):
        create_home(home, "", url_of(server, schema))


def test_a_database_that_refuses_a_user_is_named_with_what_to_check(
    server: str, journal_url: str, blobs_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(server, autocommit=True) as db:
        db.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        hba = Path(str(conninfo_to_dict(server)["host"])) / "data" / "pg_hba.conf"
        hba.write_text(f"local all locked scram-sha-256\n{hba.read_text()}")
        db.execute("SELECT pg_reload_conf()")
    for user, said in (("locked:wrong", "password authentication failed"), ("nobody", "does not exist")):
        url = journal_url.replace("journal@", f"{user}@")
        with pytest.raises(Unavailable, match=rf"/postgres schema .* cannot be reached: .*{said}.*; check the .* URL"):
            create_home(Home(tmp_path / "home"), blobs_url, url)
    assert not _schemas(server, journal_url)


def test_the_project_names_both_and_a_variable_takes_precedence(
    made: HomeMaker,
    podium: Podium,
    server: str,
    journal_url: str,
    blobs_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made.close()
    podium("export", "counter/a", str(tmp_path / "a.podium"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "podium.toml").write_text(f'agents = ["a.py:A"]\njournal = "{journal_url}"\nblobs = "{blobs_url}"\n')
    monkeypatch.chdir(project)
    podium("import", str(tmp_path / "a.podium"), home=project / "home")
    home = Home(project / "home").open()
    assert (home.journal_url, home.blobs_url) == (journal_url, blobs_url)
    assert podium("cat", "counter/a", "out.txt", home=home.path) == "counter/a 2"
    other = url_of(server, f"home_{uuid4().hex}")
    monkeypatch.setenv("PODIUM_JOURNAL_URL", other)
    monkeypatch.setenv("PODIUM_BLOBS_URL", f"{blobs_url}-other")
    podium("import", str(tmp_path / "a.podium"), home=project / "second")
    second = Home(project / "second").open()
    assert (second.journal_url, second.blobs_url) == (other, f"{blobs_url}-other")
    monkeypatch.delenv("PODIUM_JOURNAL_URL")
    monkeypatch.delenv("PODIUM_BLOBS_URL")
    podium("import", str(tmp_path / "a.podium"), "--as", "counter/b", home=second.path, code=ExitCode.HOME_ERROR)
    assert f"keeps its journal at {other}, not at postgresql://" in podium.err
    (project / "podium.toml").write_text('journal = "postgresql://u:hidden@db/podium"\n')
    podium("import", str(tmp_path / "a.podium"), home=project / "third", code=ExitCode.USAGE)
    assert "journal: it has a password" in podium.err
    assert "hidden" not in podium.err
    assert not (project / "third").exists()


def test_the_first_key_of_a_new_home_is_made_where_its_journal_is(
    server: str,
    journal_url: str,
    blobs_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PODIUM_JOURNAL_URL", journal_url)
    monkeypatch.setenv("PODIUM_BLOBS_URL", blobs_url)
    Podium(tmp_path / "one", capsys)("keys", "create", "ci")
    assert _schemas(server, journal_url)
    assert " ci " in Podium(tmp_path / "two", capsys)("keys", "list")


def _schemas(server: str, journal_url: str) -> set[str]:
    """Return the schemas that a home has in its database."""
    schema = journal_url.partition("schema=")[2]
    with psycopg.connect(server) as db:
        return {
            name for (name,) in db.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", (f"{schema}%",))
        }


def test_a_schema_that_is_gone_is_not_made_again(
    server: str, journal_url: str, blobs_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = create_home(Home(tmp_path / "home"), blobs_url, journal_url)
    podium = Podium(home.path, capsys)
    journal, records = sorted(_schemas(server, journal_url))
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA {records} CASCADE")
    for command in (["models"], ["models", "calls"], ["keys", "list"], ["keys", "create", "ci"], ["upgrade"]):
        podium(*command, code=ExitCode.NOT_FOUND)
        assert f"schema {records} does not hold the records of a home" in podium.err
    assert f"schema {records} does not hold the records of a home" in podium("verify", code=ExitCode.DAMAGED)
    assert _schemas(server, journal_url) == {journal}
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA {journal} CASCADE")
    for command in (["ps"], ["fold", "counter/a"], ["verify"]):
        podium(*command, code=ExitCode.HOME_ERROR)
        assert f"is missing (schema {journal} does not hold the journal): restore it" in podium.err
    podium("upgrade", code=ExitCode.NOT_FOUND)
    assert not _schemas(server, journal_url)


def test_two_directories_of_it_on_one_machine_are_told_apart(journal_url: str, blobs_url: str, tmp_path: Path) -> None:
    one = create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    two = create_home(Home(tmp_path / "two"), journal_url=journal_url)
    paths = WorkspacePaths(tmp_path, one.id)
    says = rf"two and {one.path} are directories of one home.*\(--home {one.path}\).*\(podium down --home {one.path}\)$"
    with paths.claimed(one.path):
        paths.check(one.path)
        with pytest.raises(HomeError, match=says):
            paths.check(two.path)
    paths.check(two.path)


@pytest.mark.parametrize("arguments", [["ps"], ["gc"], ["upgrade"]], ids=" ".join)
def test_a_database_that_says_nothing_is_waited_for_once(
    journal_url: str, blobs_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    home = create_home(Home(tmp_path / "home"), blobs_url, journal_url)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        host, port = silent.getsockname()
        described = (home.path / "format").read_text()
        nowhere = f"postgresql://podium@{host}:{port}/db?connect_timeout=2"
        (home.path / "format").write_text(described.replace(home.journal_url, nowhere))
        podium = Podium(home.path, capsys)
        podium(*arguments, code=ExitCode.UNAVAILABLE)
        connections = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert connections == 1
    assert podium.err.count("\n") == 1
    assert "timeout" in podium.err


def test_what_another_machine_has_published_is_kept_when_it_is_gone(
    server: str, journal_url: str, blobs_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tree that a layer there has sealed, and no journal refers to."""
    one = create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    two = create_home(Home(tmp_path / "two"), journal_url=journal_url)
    roots, podium = open_records(one).node_roots(), Podium(two.path, capsys)
    with closing(one.blobs()) as blobs:
        layer, _ = open_layer(LayerSpec("w", one.path / "nodes" / "a" / "layers", None, 1, 1), blobs, ManualClock())
        layer.create(layer.root, b"file", 0o644, *layer.owner)
        sealed = layer.seal()
    assert sealed in roots_of(one.path)
    with (
        closing(one.journal()) as journal,
        closing(one.blobs()) as blobs,
        serving(journal, blobs, tmp_path, roots=roots) as store,
        closing(store.link("host_1").calls()) as of_host,
        closing(store.link(manager_of("a")).calls()) as of_manager,
    ):
        with pytest.raises(InvalidInput, match="not for this caller"):
            publish_roots(RemoteRoots(of_host), tmp_path)
        publish_roots(RemoteRoots(of_manager), one.path)
    assert roots.of_others() == []
    (tmp_path / "one").rename(tmp_path / "gone")
    podium("gc", "--now")
    with closing(PackBlobStore(blobs_url, cache=None)) as blobs:
        TreeChecker(blobs).check(sealed)
    with psycopg.connect(server, autocommit=True) as db:  # a month later
        schema = f"{journal_url.partition('schema=')[2]}_home"
        db.execute(f"UPDATE {schema}.document SET written = written - 31::bigint * 86400000 WHERE name LIKE 'roots %'")
    open_records(two).node_roots().publish([])
    podium("gc", "--now")
    with closing(PackBlobStore(blobs_url, cache=None)) as blobs, pytest.raises(NotFound):
        blobs.get(sealed.oplog_id)


def test_nothing_is_collected_while_a_layer_of_another_machine_cannot_be_read(
    journal_url: str, blobs_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    two = create_home(Home(tmp_path / "two"), journal_url=journal_url)
    roots, podium = open_records(one).node_roots(), Podium(two.path, capsys)
    damaged = one.path / "nodes" / "a" / "layers" / "w" / "dir"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    with pytest.raises(Corrupt):
        publish_roots(roots, one.path)
    podium("gc", code=ExitCode.DAMAGED)
    assert f"what the layers of {socket.gethostname()}:{one.path} refer to is not known" in podium.err
    damaged.unlink()
    publish_roots(roots, one.path)
    podium("gc")


def test_one_directory_collects_garbage_at_a_time_and_not_at_once_beside_a_service(
    journal_url: str, blobs_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = create_home(Home(tmp_path / "one"), blobs_url, journal_url)
    two = create_home(Home(tmp_path / "two"), journal_url=journal_url)
    podium = Podium(two.path, capsys)
    with open_records(one).collection_lease().hold():
        podium("gc", code=ExitCode.CONFLICT)
        assert f"another gc of this home is running, at {socket.gethostname()}:{one.path}" in podium.err
        podium("gc", "--dry-run")
    podium("gc")
    service = open_records(one).service_claim()
    service.hold()
    podium("gc", "--now", code=ExitCode.HOME_ERROR)
    assert "another service has this home" in podium.err
    podium("gc")
    service.release()
    podium("gc", "--now")


def test_a_name_of_a_schema_that_the_server_would_cut_is_refused(
    server: str, blobs_url: str, made: HomeMaker, podium: Podium, tmp_path: Path
) -> None:
    longest, longer = f"home_{'l' * 53}", f"home_{'l' * 54}"
    with pytest.raises(InvalidInput, match=rf"schema {longer}_home has 64 bytes, and the server keeps 63; .*schema="):
        create_home(Home(tmp_path / "one"), blobs_url, url_of(server, longer))
    made.close()
    podium("migrate", "--to", url_of(server, longer), "--blobs-url", blobs_url, code=ExitCode.USAGE)
    assert not _schemas(server, url_of(server, "home_lll"))
    one = create_home(Home(tmp_path / "one"), blobs_url, url_of(server, longest))
    one.journal().close()
    assert _schemas(server, one.journal_url) == {longest, f"{longest}_home"}


# -- podium migrate ----------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home in a directory, with two agents, a key and a call."""
    maker = HomeMaker(tmp_path / "home")
    for name in ("counter/a", "counter/b"):
        agent = maker.agent(name)
        for number in range(3):
            agent.turn(f"{name} {number}", {"out.txt": f"{name} {number}".encode()})
    agent.admit("still to come")
    keep(open_records(Home(maker.path)), record("call_1"))
    yield maker
    maker.close()


@pytest.fixture
def podium(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(made.path, capsys)


def test_a_home_moves_and_goes_on_and_a_backup_is_the_way_back(
    made: HomeMaker, podium: Podium, journal_url: str, blobs_url: str, tmp_path: Path
) -> None:
    home = Home(made.path)
    with closing(open_records(home).keys()) as keys:
        _, text = keys.create("n", "acme", [Scope.READ], 1)
    made.close()
    before = podium.json("verify")
    moved = podium.json("migrate", "--to", journal_url, "--blobs-url", blobs_url)
    assert (moved["journal_url"], moved["blobs_url"], moved["agents"]) == (journal_url, blobs_url, 2)
    assert (moved["events"], moved["blobs"]) == (before["events"], before["blobs"])
    now = Home(made.path).open()
    assert (now.journal_url, now.blobs_url, now.id) == (journal_url, blobs_url, home.id)
    assert not (made.path / "journal.db").exists()
    assert (made.path / "moved" / "journal.db").exists()
    checked = podium.json("verify")
    assert (checked["ok"], checked["events"], checked["blobs"]) == (True, before["events"], before["blobs"])
    assert podium("cat", "counter/b@2", "out.txt") == "counter/b 1"
    assert open_records(now).call_log().latest(None, 9) == [record("call_1")]
    with closing(open_records(now).keys()) as keys:
        assert keys.find(text) is not None
    with closing(now.journal()) as journal:
        for session in journal.sessions():
            assert journal.lease(session.session_id) is None, "the next activation would count an attempt"
    assert create_home(Home(tmp_path / "two"), journal_url=journal_url).id == home.id
    back = tmp_path / "back"
    podium("backup", str(back))
    assert podium("cat", "counter/b@2", "out.txt", home=back) == "counter/b 1"
    with closing(open_records(Home(back)).keys()) as keys:
        assert keys.find(text) is not None


def test_a_move_that_was_broken_off_is_begun_again(
    made: HomeMaker, podium: Podium, journal_url: str, blobs_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broken in ("receive", "read_back", "release_leases"):
        with monkeypatch.context() as patch:
            owner = PostgresHomeRecords if broken == "receive" else migration
            patch.setattr(owner, broken, Mock(side_effect=Unavailable("the cable was pulled")))
            podium("migrate", "--to", journal_url, "--blobs-url", blobs_url, code=ExitCode.UNAVAILABLE)
        assert not Home(made.path).open().is_shared
        assert podium("cat", "counter/a", "out.txt") == "counter/a 2"
        with pytest.raises(HomeError, match="is being moved to .*: call podium migrate again where that was begun"):
            create_home(Home(tmp_path / "other"), blobs_url, journal_url)
    made.agent("counter/late").turn("late", {"out.txt": b"late"})
    made.close()
    moved = podium.json("migrate", "--to", journal_url, "--blobs-url", blobs_url)
    assert moved["agents"] == 3
    assert podium("cat", "counter/late", "out.txt") == "late"


def test_what_is_there_is_not_replaced(
    made: HomeMaker, podium: Podium, server: str, journal_url: str, blobs_url: str, tmp_path: Path
) -> None:
    def refused(url: str, blobs: str = blobs_url) -> str:
        podium("migrate", "--to", url, "--blobs-url", blobs, code=ExitCode.HOME_ERROR)
        assert not Home(made.path).open().is_shared
        return podium.err

    other = Home(tmp_path / "other")
    assert f"is at {journal_url} already" in refused(_with_a_home(journal_url, f"{blobs_url}-other", tmp_path))
    documents = open_records(other.open()).documents()
    write_identity(documents, Identity(Home(made.path).id, f"{blobs_url}-other"))
    assert "and this directory has a copy of it: give a new directory" in refused(journal_url)
    used = url_of(server, f"home_{uuid4().hex}")
    with closing(open_journal(used)) as store:
        Writer.on(store)
    assert "has a journal already, which is not of this home" in refused(used)
    moving = url_of(server, f"home_{uuid4().hex}")
    documents = records_at(moving, lambda: "", tmp_path, create=True).documents()
    write_identity(documents, Identity("abcdefgh2345", blobs_url, is_moving=True))
    assert f"the home abcdefgh2345 is being moved to {moving} already" in refused(moving)
    new = url_of(server, f"home_{uuid4().hex}")
    assert "is not the URL of an object store" in refused(new, "")
    assert "keeps the blobs of another home" in refused(new, f"{blobs_url}-other")
    with Home(made.path).service_lock():
        assert "end it first (podium down)" in refused(new)
    made.close()
    podium("migrate", "--to", new, "--blobs-url", blobs_url)
    podium("migrate", "--to", new, code=ExitCode.HOME_ERROR)


def test_blobs_that_are_in_an_object_store_stay_there(
    made: HomeMaker, podium: Podium, journal_url: str, blobs_url: str, tmp_path: Path
) -> None:
    at_url = HomeMaker(Home(tmp_path / "at-url").create(blobs_url).path)
    at_url.agent("counter/a").turn("one", {"out.txt": b"one"})
    at_url.close()
    podium("migrate", "--to", journal_url, "--blobs-url", blobs_url, code=ExitCode.HOME_ERROR)
    assert "keeps the blobs of another home" in podium.err
    podium.home = at_url.path
    moved = podium.json("migrate", "--to", f"{journal_url}_2")
    assert (moved["blobs_url"], moved["agents"]) == (blobs_url, 1)
    assert podium("cat", "counter/a", "out.txt") == "one"
    two = create_home(Home(tmp_path / "two"), journal_url=f"{journal_url}_2")
    assert podium("cat", "counter/a", "out.txt", home=two.path) == "one"
