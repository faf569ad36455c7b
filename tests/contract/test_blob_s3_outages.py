"""A store behind a network that fails, and a server that dies: what is said, tried again, and comes through."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.cache import BlobCache
from chronicle.blobs.media.fsspec_objects import Patience, open_remote
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Conflict, Corrupt, InvalidInput, NotFound, Unavailable
from chronicle.testing.blob_contract import named
from tests.faulty_proxy import FaultyProxy, running_halt, running_proxy
from tests.s3_server import BUCKET, S3Server, free_port, running_s3

DATA = random.Random(1).randbytes(400_000)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with running_proxy(s3.port) as running:
        yield running


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.blobs.media.fsspec_objects._BACKOFF_S", 0.01)
    monkeypatch.setattr("chronicle.blobs.media.fsspec_objects._LONGEST_PAUSE_S", 0.05)
    monkeypatch.setenv("CHRONICLE_STORE_PATIENCE_S", "0")  # five attempts


def options(s3: S3Server, proxy: FaultyProxy) -> dict[str, Any]:
    return s3.options(proxy.endpoint)


def opened(s3: S3Server, proxy: FaultyProxy, url: str) -> PackBlobStore:
    return PackBlobStore(url, cache_bytes=0, options=options(s3, proxy), cache=None)


@pytest.mark.parametrize("fault", ["error", "reset", "tear", "close"])
def test_what_passes_goes_unnoticed(
    s3: S3Server, proxy: FaultyProxy, url: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHRONICLE_STORE_PATIENCE_S")
    store = opened(s3, proxy, url)
    proxy.status = 500, "Internal Server Error"
    proxy.fail(fault, 9)
    store.put(named(DATA))
    assert proxy.failures == 0
    proxy.fail(fault, 9)
    assert store.get(blob_id(DATA)) == DATA
    assert proxy.failures == 0
    proxy.fail(fault, 2)
    assert store.missing(named(DATA, b"other")) == set(named(b"other"))
    proxy.fail(fault, 2)
    assert opened(s3, proxy, url).get(blob_id(DATA)) == DATA


@pytest.mark.parametrize("fault", ["error", "reset", "tear"])
def test_what_does_not_pass_is_said_and_mends_itself(s3: S3Server, proxy: FaultyProxy, url: str, fault: Any) -> None:
    store = opened(s3, proxy, url)
    store.put(named(DATA))
    proxy.fail(fault, -1, "GET")
    with pytest.raises(Unavailable, match=rf"{url} does not answer \(5 attempts .* try again"):
        store.get(blob_id(DATA))
    proxy.fail("none", 0)
    assert store.get(blob_id(DATA)) == DATA


def test_a_request_that_is_not_answered_has_a_deadline(s3: S3Server, proxy: FaultyProxy, url: str) -> None:
    objects = open_remote(url, options(s3, proxy), Patience(attempts=20, request_s=0.5, repeat_s=0))
    hasty = open_remote(url, options(s3, proxy), Patience(attempts=2, request_s=0.5, repeat_s=0))
    objects.write("here", [b"x"])
    proxy.fail("stall", 1)
    assert objects.read("here") == b"x"
    proxy.fail("stall")
    with pytest.raises(Unavailable, match="2 attempts"):
        hasty.read("here")
    with pytest.raises(Unavailable, match="2 attempts"):
        hasty.write("there", [b"y"])
    proxy.fail("none", 0)
    assert objects.read("here") == b"x"
    objects.write("there", [b"y"])
    assert objects.read("there") == b"y"


def test_bytes_that_were_altered_on_the_way_are_read_again(s3: S3Server, proxy: FaultyProxy, url: str) -> None:
    store = opened(s3, proxy, url)
    store.put(named(DATA))
    proxy.fail("alter", 1, "GET")
    assert store.get(blob_id(DATA)) == DATA
    proxy.fail("alter", -1, "GET")
    with pytest.raises(Corrupt, match=blob_id(DATA)):
        store.get(blob_id(DATA))


@pytest.mark.parametrize(
    ("status", "reason"),
    [((500, "Internal Server Error"), "HTTP 500"), ((503, "Slow Down"), "HTTP 503"), ((429, "Too Many"), "HTTP 429")],
)
def test_the_status_of_a_failure_is_said(
    s3: S3Server, proxy: FaultyProxy, url: str, status: tuple[int, str], reason: str
) -> None:
    store = opened(s3, proxy, url)
    store.put(named(DATA))
    proxy.status = status
    proxy.fail("error")
    for action in (lambda: store.get(blob_id(DATA)), lambda: store.put(named(b"new"))):
        with pytest.raises(Unavailable, match=rf"5 attempts .*: {reason}\b"):
            action()


@pytest.mark.parametrize("status", [(400, "Bad Request"), (403, "Forbidden"), (405, "Method Not Allowed")])
def test_a_refusal_is_not_tried_again(s3: S3Server, proxy: FaultyProxy, url: str, status: tuple[int, str]) -> None:
    store = opened(s3, proxy, url)
    store.put(named(DATA))
    proxy.status = status
    proxy.fail("error", 2)
    with pytest.raises(Unavailable, match=rf"was refused: HTTP {status[0]}\b.*check the endpoint"):
        store.get(blob_id(DATA))
    assert proxy.failures == 1


def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, url: str) -> None:
    with running_s3(tmp_path / "s3", recorded=True) as server:
        store = PackBlobStore(url, cache_bytes=0, options=server.options(), cache=None)
        store.put(named(DATA))
        server.kill()
        for action in (
            lambda: store.get(blob_id(DATA)),
            lambda: store.put(named(b"during")),
            lambda: PackBlobStore(url, options=server.options(), cache=None).get(blob_id(DATA)),
        ):
            with pytest.raises(Unavailable, match=f"{url} does not answer"):
                action()
        server.start()
        assert store.get(blob_id(DATA)) == DATA
        assert store.missing(named(b"during")) == set(named(b"during"))
        store.put(named(b"during"))
        assert PackBlobStore(url, options=server.options(), cache=None).get(blob_id(b"during")) == b"during"


def test_what_is_kept_on_the_node_is_read_while_the_store_is_away(
    s3: S3Server, proxy: FaultyProxy, url: str, tmp_path: Path
) -> None:
    store = PackBlobStore(url, cache_bytes=0, options=options(s3, proxy), cache=BlobCache(tmp_path, 10_000_000))
    store.put(named(DATA, b"x" * 50_000))
    assert store.get(blob_id(DATA)) == DATA
    proxy.fail("reset")
    assert store.get(blob_id(DATA)) == DATA
    with pytest.raises(Unavailable):
        store.get(blob_id(b"x" * 50_000))


def test_errors_hold_no_secrets() -> None:
    secret = "s3://user:hunter2@bucket/prefix?token=hunter2"
    with pytest.raises((Unavailable, InvalidInput)) as caught:
        PackBlobStore(
            secret,
            options={
                "key": "k",
                "secret": "hunter2",
                "endpoint_url": f"http://127.0.0.1:{free_port()}",
                "client_kwargs": {"region_name": "us-east-1"},
            },
            cache=None,
        ).get(blob_id(DATA))
    assert "hunter2" not in str(caught.value)
    assert "s3://bucket/prefix" in str(caught.value)


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    store = PackBlobStore("s3://nobucket/x", options=s3.options(), cache=None)
    with pytest.raises(NotFound):
        store.get(blob_id(b"x"))
    with pytest.raises(Unavailable, match="make its bucket first"):
        store.put(named(b"x"))


def test_without_credentials_it_is_not_tried_five_times(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"endpoint_url": s3.endpoint, "client_kwargs": {"region_name": "us-east-1"}, "anon": False}
    with pytest.raises(Unavailable, match="was refused: .*credentials"):
        PackBlobStore(f"s3://{BUCKET}/nobody", options=given, cache=None).get(blob_id(DATA))


def test_of_two_who_create_an_object_one_does(s3: S3Server, proxy: FaultyProxy, url: str) -> None:
    objects = open_remote(url, options(s3, proxy))
    results: list[object] = []

    def create(data: bytes) -> None:
        try:
            objects.create("commits/1", data)
            results.append(data)
        except Conflict as error:
            results.append(error)

    threads = [threading.Thread(target=create, args=(b"%d" % number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [result for result in results if isinstance(result, bytes)]
    assert objects.read("commits/1") == winner
    proxy.fail("tear", 1, "PUT")  # done, and its answer lost
    objects.create("commits/2", b"mine")
    objects.create("commits/2", b"mine")
    with pytest.raises(Conflict, match="commits/2"):
        objects.create("commits/2", b"yours")
    assert objects.read("commits/2") == b"mine"


UPLOADER = """
import sys
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.testing.blob_contract import named
import random

url, endpoint, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = {"key": "testing", "secret": "testing", "endpoint_url": endpoint}
options["client_kwargs"] = {"region_name": "us-east-1"}
store = PackBlobStore(url, options=options, cache=None)
print("ready", flush=True)
store.put(named(*(random.Random(number).randbytes(size // 8) for number in range(8))))
print("put", flush=True)
"""


def test_an_uploader_that_is_killed_in_the_middle_leaves_nothing(s3: S3Server, proxy: FaultyProxy, url: str) -> None:
    """Killed when the server has the request's head and not its body, and when it has all and nobody was told."""
    size = 24 * 1024 * 1024
    blobs = [blob_id(random.Random(number).randbytes(size // 8)) for number in range(8)]
    opened(s3, proxy, url).put(named(b"before"))
    root = Path(__file__).parents[2]
    for fault in ("half sent", "stall"):
        reached = threading.Event()
        with ExitStack() as stack:
            if fault == "half sent":
                port = free_port()
                stack.enter_context(running_halt(port, s3.port, size // 2, reached))
            else:
                way = stack.enter_context(running_proxy(s3.port))
                way.fail("stall", -1, "PUT")
                way.on_put = reached.set
                port = way.port
            process = subprocess.Popen(
                [sys.executable, "-c", UPLOADER, url, f"http://127.0.0.1:{port}", str(size)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root)},
            )
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                assert reached.wait(60)
            finally:
                process.kill()
                rest, _ = process.communicate(timeout=60)
            assert rest == ""
        store = opened(s3, proxy, url)
        assert store.missing(blobs) == set(blobs)
        assert set(store.blob_ids()) == set(named(b"before"))
        assert len(store._objects.names("packs")) == 1
    store.put(named(*(random.Random(number).randbytes(size // 8) for number in range(8))))
    assert opened(s3, proxy, url).missing(blobs) == set()
