"""A podium home whose blobs are in an object store."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from chronicle.blobs import blob_id
from chronicle.errors import Unavailable
from chronicle.testing.blob_contract import named
from coordinator.home import Home
from podium.errors import HomeError
from tests.s3_server import BUCKET, S3Server, free_port, point_at


@pytest.fixture
def url(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    return f"s3://{BUCKET}/{uuid4().hex}"


def test_it_remembers_where_its_blobs_are(url: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create(url)
    assert home.blobs_url == url
    with closing(home.blobs()) as blobs:
        blobs.put(named(b"there"))
    again = Home(tmp_path / "home")
    assert again.blobs_url == url
    with closing(again.create().blobs()) as blobs:
        assert blobs.get(blob_id(b"there")) == b"there"
    assert not list((tmp_path / "home" / "blobs").iterdir())
    assert json.loads((tmp_path / "home" / "format").read_text())["format"] == 2
    assert Home(tmp_path / "home").create(url + "/").blobs_url == url


def test_no_other_home_may_have_the_same(url: str, tmp_path: Path) -> None:
    Home(tmp_path / "one").create(url)
    with pytest.raises(HomeError, match=f"another home, .*{tmp_path}/one; give another URL"):
        Home(tmp_path / "two").create(url)
    shutil.rmtree(tmp_path / "one")  # its creation was cut short, say
    Home(tmp_path / "one").create(url)


def test_a_home_does_not_change_its_mind(url: str, tmp_path: Path) -> None:
    Home(tmp_path / "local").create()
    with pytest.raises(HomeError, match="in its own directory, not at s3://"):
        Home(tmp_path / "local").create(url)
    Home(tmp_path / "far").create(url)
    with pytest.raises(HomeError, match=f"at {url}, not at {url}-other"):
        Home(tmp_path / "far").create(f"{url}-other")


@pytest.mark.parametrize("wrong", ["/a/path", "file:///a/path"])
def test_a_path_is_no_url(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="not the URL of an object store"):
        Home(tmp_path).create(wrong)


def test_a_server_that_is_not_there_is_no_fault_of_the_home(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="ftp://127.0.0.1:.* cannot be reached: Connection refused; check the URL"):
        Home(tmp_path / "home").create(f"ftp://127.0.0.1:{free_port()}/home")


def test_a_store_that_is_away_makes_no_home(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at(monkeypatch, f"http://127.0.0.1:{free_port()}", tmp_path / "cache")
    with pytest.raises(Unavailable, match="does not answer"):
        Home(tmp_path / "home").create(url)
    assert not (tmp_path / "home" / "format").exists()
