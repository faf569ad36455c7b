"""Bundles on a node: verified, safe beside others, removed when unused, refused where they do not fit."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.ident import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import InvalidInput, NotFound, StorageRefused
from podium.code.manifest import BundledFile, Manifest, podium_version, python_version, ray_version
from podium.code.requirements import check_fits, lacking, parse_requirement
from podium.code.unpacking import BundleCache
from podium.errors import BundleRefused

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore

_UNPACK = """
import sys
from pathlib import Path
from chronicle.blobs.packs.pack_store import PackBlobStore
from podium.code.unpacking import BundleCache
url, cache, *bundles = sys.argv[1:]
for bundle in bundles:
    print(BundleCache(Path(cache)).unpack(PackBlobStore(url), bundle), flush=True)
sys.stdin.read()
"""
"""A host, as far as bundles know it: it ends with its standard input."""


def stored(blobs: BlobStore, **files: str) -> Manifest:
    """A bundle of Python files, with their content by name."""
    contents = {blob_id(text.encode()): text.encode() for text in files.values()}
    named = {f"code/{name}.py": BundledFile(blob_id(text.encode()), len(text)) for name, text in files.items()}
    manifest = Manifest(named)
    blobs.put({**contents, manifest.bundle: manifest.encode()})
    return manifest


def test_files_are_verified_and_mended(tmp_path: Path) -> None:
    blobs, cache = MemoryBlobStore(), BundleCache(tmp_path / "bundles")
    bundle = stored(blobs, agent="import other", other="", more="x = 1").bundle
    place = cache.unpack(blobs, bundle)
    assert place == tmp_path / "bundles" / bundle
    (place / "code" / "agent.py").write_text("import evil!")
    (place / "code" / "other.py").unlink()
    (place / "code" / "more.py").unlink()
    (place / "code" / "more.py").symlink_to(place / "code" / "agent.py")
    with ThreadPoolExecutor(8) as threads:
        places = list(threads.map(lambda _: cache.unpack(blobs, bundle), range(32)))
    assert set(places) == {place}
    found = {path.name: path.read_text() for path in (place / "code").iterdir()}
    assert found == {"agent.py": "import other", "other.py": "", "more.py": "x = 1"}
    assert not (place / "code" / "more.py").is_symlink()


def test_a_bundle_that_is_gone_or_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    manifest = stored(blobs, agent="")
    with pytest.raises(NotFound):
        BundleCache(tmp_path / "bundles").unpack(MemoryBlobStore(), manifest.bundle)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageRefused, match=f"code bundle {manifest.bundle[:12]} cannot be kept in .*Not a directory"):
        BundleCache(tmp_path / "file").unpack(blobs, manifest.bundle)


def test_what_no_host_uses_is_removed(tmp_path: Path) -> None:
    url, cache = f"file://{tmp_path / 'blobs'}", tmp_path / "bundles"
    blobs = PackBlobStore(url)
    bundles = [stored(blobs, agent=f"number = {number}").bundle for number in range(7)]
    blobs.close()
    hosts = [_host(url, cache, bundles[0])]
    try:
        for bundle in bundles[1:]:  # of hosts that have ended
            _end(_host(url, cache, bundle))
        left = {path.name for path in cache.iterdir()}
        assert left == {bundles[0], *bundles[2:]}, "one is in use, one was just used, and four are kept"
        assert (cache / bundles[0] / "code" / "agent.py").read_text() == "number = 0"
        hosts.append(_host(url, cache, bundles[1]))
        assert (cache / bundles[1] / "code" / "agent.py").read_text() == "number = 1"
    finally:
        for host in hosts:
            _end(host)


def test_hosts_that_unpack_and_remove_at_once_have_their_files(tmp_path: Path) -> None:
    url, cache = f"file://{tmp_path / 'blobs'}", tmp_path / "bundles"
    blobs = PackBlobStore(url)
    bundles = [stored(blobs, agent=f"number = {number}").bundle for number in range(12)]
    blobs.close()
    orders = [[*bundles[number:], *bundles[:number]] for number in (0, 4, 8)]
    hosts = [_started(url, cache, *order) for order in orders]
    try:
        for host, order in zip(hosts, orders, strict=True):
            for bundle in order:
                assert host.stdout is not None
                assert Path(host.stdout.readline().strip()).name == bundle
                assert (cache / bundle / "code" / "agent.py").is_file()
    finally:
        for host in hosts:
            _end(host)


def test_another_version_or_a_missing_requirement_is_refused_by_name() -> None:
    here = Manifest({}, requirements=("pydantic>=2", f"pydantic=={version('pydantic')}", "gone; python_version < '3'"))
    check_fits(here)
    check_fits(replace(here, ray=None))
    for manifest, refusal in (
        (
            replace(here, podium="9.9"),
            f"requires podium 9.9, and the node .* has podium {podium_version()}: install .*; or deploy again",
        ),
        (replace(here, ray="1.0"), rf"requires Ray 1\.0, and the node .* has Ray {ray_version()}: install it"),
        (replace(here, python="3.1"), rf"requires Python 3\.1, and the node .* has Python {python_version()}"),
        (replace(here, requirements=("no-such>=1",)), "requires no-such>=1, and the node .* has no no-such: install"),
        (
            replace(here, requirements=("pydantic<2",)),
            f"requires pydantic<2, and the node .* has pydantic {version('pydantic')}",
        ),
    ):
        with pytest.raises(BundleRefused, match=f"the code bundle {manifest.bundle[:12]} {refusal}"):
            check_fits(manifest)
    both = replace(here, podium="9.9", requirements=("no-such>=1", "pydantic<2"))
    assert lacking(both) == [
        ("podium 9.9", f"podium {podium_version()}"),
        ("no-such>=1", "no no-such"),
        ("pydantic<2", f"pydantic {version('pydantic')}"),
    ]


@pytest.mark.parametrize("text", ["", "a b", ">=1", "tool @ https://example.org/tool.tar.gz", "-r other.txt"])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="write a name and its versions, such as httpx>=0.28"):
        parse_requirement(text)


def _started(url: str, cache: Path, *bundles: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _UNPACK, url, str(cache), *bundles]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _host(url: str, cache: Path, bundle: str) -> subprocess.Popen[str]:
    """A host that has unpacked its bundle."""
    host = _started(url, cache, bundle)
    assert host.stdout is not None
    assert host.stdout.readline().strip() == str(cache / bundle)
    return host


def _end(host: subprocess.Popen[str]) -> None:
    host.communicate(timeout=60)
    assert host.returncode == 0
