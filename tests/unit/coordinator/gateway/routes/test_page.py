"""The page of ``podium up --ui``: its files, their headers, and what they are made of."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from coordinator.gateway.page import files
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

pytestmark = pytest.mark.anyio
STATIC = Path(files.__file__).parent / "static"


async def test_files_are_served_under_a_strict_policy(tmp_path: Path) -> None:
    async with served_home(tmp_path / "home", Notes, page=True) as home:
        for path, (name, media_type) in files.FILES.items():
            answer = await home.http.get(f"/ui/{path}")
            assert answer.status_code == 200
            assert answer.content == (STATIC / name).read_bytes()
            assert answer.headers["content-type"] == media_type
            assert answer.headers["content-security-policy"] == files.CONTENT_SECURITY_POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = await home.http.get(f"/ui/{path}", headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
        moved = await home.http.get("/ui")
        assert (moved.status_code, moved.headers["location"]) == (308, "/ui/")
        assert (await home.http.get("/ui/vendor/manifest.json")).status_code == 404
    assert "unsafe" not in files.CONTENT_SECURITY_POLICY
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"https?://|<style|\son\w+=|<script(?![^>]*\ssrc=)", page), (
        "nothing inline, nothing from elsewhere"
    )


async def test_there_is_no_page_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with served_home(tmp_path / "home", Notes) as home:
        assert (await home.http.get("/ui/")).status_code == 404


def test_what_others_made_is_what_was_built_and_has_its_licences() -> None:
    manifest = json.loads((STATIC / "vendor" / "manifest.json").read_text())
    for name, digest in manifest["sha256"].items():
        assert sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest
    licences = (STATIC / "vendor" / "LICENSES.txt").read_text()
    pinned = json.loads((Path(__file__).parents[5] / "tools" / "page" / "package.json").read_text())["dependencies"]
    for name, version in manifest["packages"].items():
        assert f"{name} {version} (" in licences
        assert pinned[name] == version
