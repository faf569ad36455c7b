"""Files over HTTP: content, ranges, conditions, directories, versions; uploads that are whole or not there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

FILES = "/v1/agents/notes/a/files"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Notes, upload_bytes=1_000_000) as served:
        await served.send("notes/a", "one", "two")
        yield served


async def put(home: ServedHome, path: str, content: Any, status: int = 200) -> Any:
    answer = await home.http.put(f"{FILES}/{path}", content=content)
    assert answer.status_code == status, answer.text
    return answer.json()


async def cut_off(home: ServedHome, path: str, begun: bytes) -> None:
    """Begin an upload, and leave."""
    messages = [{"type": "http.request", "body": begun, "more_body": True}, {"type": "http.disconnect"}]
    url = f"{FILES}/{path}"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "PUT",
        "headers": [(b"host", b"localhost")],
        "path": url,
        "raw_path": url.encode(),
        "query_string": b"",
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await home.app(scope, receive, send)
    assert sent[0]["status"] == 400


async def test_a_file_now_and_before(home: ServedHome) -> None:
    answer = await home.http.get(f"{FILES}/notes.txt")
    assert (answer.status_code, answer.text) == (200, "one\ntwo\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-length"] == "8"
    assert (await home.http.get(f"{FILES}/notes.txt?turn=1")).text == "one\n"
    assert (await home.http.get(f"{FILES}/notes.txt?iteration=1")).text == "one\n"
    versions = (await home.get("/agents/notes/a/history/notes.txt", limit=1))["items"]
    assert [(version["iteration"], version["turn"], version["size"]) for version in versions] == [(1, 1, 4)]
    cursor = (await home.get("/agents/notes/a/history/notes.txt", limit=1))["next_cursor"]
    rest = await home.get("/agents/notes/a/history/notes.txt", cursor=cursor)
    assert [version["iteration"] for version in rest["items"]] == [2]
    for path in ("nothing", "notes.txt/below", "notes.txt?iteration=9", "notes.txt?turn=0"):
        assert (await home.error("GET", f"{FILES}/{path}", 404))["code"] in {"unknown_file", "not_found"}
    assert (await home.error("GET", f"{FILES}/notes.txt?turn=7", 404))["code"] == "unknown_turn"


@pytest.mark.parametrize(
    ("asked", "status", "text", "where"),
    [
        ("bytes=0-2", 206, "one", "bytes 0-2/8"),
        ("bytes=4-", 206, "two\n", "bytes 4-7/8"),
        ("bytes=-3", 206, "wo\n", "bytes 5-7/8"),
        ("bytes=-99", 206, "one\ntwo\n", "bytes 0-7/8"),
        ("bytes=6-999", 206, "o\n", "bytes 6-7/8"),
        ("bytes=5-2", 200, "one\ntwo\n", None),
        ("bytes=0-0,4-4", 200, "one\ntwo\n", None),
        ("lines=0-2", 200, "one\ntwo\n", None),
        ("bytes=8-", 416, None, "bytes */8"),
        ("bytes=-0", 416, None, "bytes */8"),
    ],
)
async def test_ranges(home: ServedHome, asked: str, status: int, text: str | None, where: str | None) -> None:
    answer = await home.http.get(f"{FILES}/notes.txt", headers={"Range": asked})
    assert (answer.status_code, answer.headers.get("content-range")) == (status, where)
    if text is None:
        assert answer.json()["error"]["code"] == "range_not_satisfiable"
    else:
        assert answer.text == text
        head = await home.http.head(f"{FILES}/notes.txt", headers={"Range": asked})
        assert (head.status_code, head.content) == (status, b"")
        assert head.headers["content-length"] == str(len(text))


async def test_conditions(home: ServedHome) -> None:
    tag = (await home.http.head(f"{FILES}/notes.txt")).headers["etag"]
    for sent in (tag, f'"x", W/{tag}', "*"):
        same = await home.http.get(f"{FILES}/notes.txt", headers={"If-None-Match": sent})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (await home.http.get(f"{FILES}/notes.txt", headers={"If-None-Match": '"x"'})).status_code == 200
    for sent, status in ((tag, 206), ('"x"', 200)):
        headers = {"Range": "bytes=0-1", "If-Range": sent}
        assert (await home.http.get(f"{FILES}/notes.txt", headers=headers)).status_code == status
    before = await home.http.head(f"{FILES}/notes.txt?turn=1")
    assert before.headers["etag"] != tag


async def test_directories_and_symlinks_are_shown_and_not_followed(home: ServedHome) -> None:
    harness = await home.fleet.harness("notes/a")
    (harness.workspace / "sub").mkdir()
    (harness.workspace / "sub" / "x.html").write_text("<script>")
    (harness.workspace / "sub" / "secret").symlink_to("/etc/passwd")
    (harness.workspace / "dir").symlink_to("sub")
    await home.send("notes/a", "three")
    root = await home.get("/agents/notes/a/files")
    assert (root["type"], root["path"], root["turn"]) == ("directory", "", 3)
    assert [(entry["name"], entry["type"]) for entry in root["entries"]] == [
        ("dir", "symlink"),
        ("notes.txt", "file"),
        ("sub", "directory"),
    ]
    assert (await home.get("/agents/notes/a/files/")) == root
    sub = await home.get("/agents/notes/a/files/sub")
    assert sub["entries"][0]["target"] == "/etc/passwd"
    assert await home.get("/agents/notes/a/files/sub/secret") == {
        "agent": "notes/a",
        "turn": 3,
        "path": "sub/secret",
        "type": "symlink",
        "target": "/etc/passwd",
    }
    page = await home.http.get(f"{FILES}/sub/x.html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]
    for path in ("dir/x.html", "sub/secret/x"):
        assert (await home.error("GET", f"{FILES}/{path}", 404))["code"] == "unknown_file"
    for path, content in (("sub/secret", b"x"), ("dir/x", b"x"), ("sub", b"x")):
        assert (await put(home, path, content, 409))["error"]["code"] == "not_a_file"
    assert (await home.error("DELETE", f"{FILES}/sub", 409))["code"] == "not_a_file"


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "a/%2e%2e/%2e%2e/b",
        "%00",
        "a%00b",
        ".chronicle/query/notes.txt",
        "n" * 300,
    ],
)
async def test_no_path_leads_out_of_a_workspace(home: ServedHome, path: str) -> None:
    before = await home.get("/agents/notes/a")
    got = await home.http.get(f"{FILES}/{path}")
    assert got.status_code in {400, 404}, got.text
    assert (await put(home, path, b"x", 400))["error"]["type"] == "invalid_request_error"
    assert (await home.http.delete(f"{FILES}/{path}")).status_code in {400, 404}
    assert await home.get("/agents/notes/a") == before


async def test_an_absolute_path_is_one_of_the_workspace(home: ServedHome) -> None:
    assert (await put(home, "%2Fetc%2Fpasswd", b"mine"))["path"] == "etc/passwd"
    assert (await home.http.get(f"{FILES}//etc//./passwd")).text == "mine"


async def test_a_name_that_is_not_utf_8(home: ServedHome) -> None:
    await put(home, "caf%E9", b"x")
    assert (await home.http.get(f"{FILES}/caf%E9")).content == b"x"
    names = [entry["name"] for entry in (await home.get("/agents/notes/a/files"))["entries"]]
    assert names == ["caf\\xe9", "notes.txt"]
    assert (await home.get("/agents/notes/a/diff", **{"from": 2}))["files"][0]["change"] == "added"
    harness = await home.send("notes/a", "three")
    assert os.fsencode("caf\udce9") in [os.fsencode(path.name) for path in harness.workspace.iterdir()]


async def test_a_name_with_newlines(home: ServedHome) -> None:
    await put(home, "a", b"without")
    await put(home, "a%0A", b"at the end")
    await put(home, "%0A/b%0Ac", b"within")
    assert (await home.http.get(f"{FILES}/a")).content == b"without"
    assert (await home.http.get(f"{FILES}/a%0A")).content == b"at the end"
    assert (await home.http.get(f"{FILES}/%0A/b%0Ac")).content == b"within"
    assert len((await home.get("/agents/notes/a/history/a%0A"))["items"]) == 1


async def test_an_upload_is_a_turn_that_runs_no_code_of_the_agent(home: ServedHome) -> None:
    made = await put(home, "data/in.csv", b"1,2\n")
    assert {key: made[key] for key in ("turn", "path", "size", "iteration")} == {
        "turn": 3,
        "path": "data/in.csv",
        "size": 4,
        "iteration": 1,
    }
    assert (await put(home, "data/in.csv", b"1,2\n"))["turn"] == 3
    event = (await home.get("/agents/notes/a/events", type="turn.committed"))["items"][-1]
    assert event["payload"]["cause"] == "upload"
    assert event["payload"]["files"] == [
        {"path": "data/in.csv", "op": "write", "size": 4, "content_id": made["hash"], "iteration": 1}
    ]
    assert (await home.get("/agents/notes/a/state"))["state"] == {"count": 2}
    harness = await home.send("notes/a", "three")
    assert (harness.workspace / "data" / "in.csv").read_text() == "1,2\n"
    deleted = await home.http.delete(f"{FILES}/data/in.csv")
    assert (deleted.json()["turn"], deleted.json()["iteration"], deleted.json()["hash"]) == (5, 2, None)
    assert (await home.error("DELETE", f"{FILES}/data/in.csv", 404))["code"] == "unknown_file"
    assert (await home.http.get(f"{FILES}/data/in.csv?turn=4")).text == "1,2\n"
    assert (await home.get("/agents/notes/a/state"))["state"] == {"count": 3}
    assert (await home.http.post("/v1/agents/notes/a/verify")).json()["ok"]


async def test_large_files_go_up_and_down_in_pieces(home: ServedHome) -> None:
    data = os.urandom(900_000)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 10_000):
            yield data[start : start + 10_000]

    await put(home, "large", pieces())
    assert (await home.http.get(f"{FILES}/large")).content == data
    part = await home.http.get(f"{FILES}/large", headers={"Range": "bytes=100000-700000"})
    assert part.content == data[100000:700001]


async def test_an_upload_over_the_limit_or_cut_off_commits_nothing(home: ServedHome) -> None:
    before = await home.get("/agents/notes/a")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield bytes(10_000)

    for content in (bytes(1_000_001), endless()):
        assert (await put(home, "large", content, 413))["error"]["code"] == "body_too_large"

    await cut_off(home, "large", b"begun")
    assert await home.get("/agents/notes/a") == before
    assert (await home.error("GET", f"{FILES}/large", 404))["code"] == "unknown_file"


async def test_files_of_agents_that_are_not_there(home: ServedHome) -> None:
    for method in ("GET", "PUT", "DELETE"):
        error = await home.error(method, "/v1/agents/notes/nobody/files/x", 404)
        assert error["code"] == "unknown_agent"


async def test_artifacts(home: ServedHome) -> None:
    sent = {"message": {"text": "three", "artifact": "<p>report</p>"}}
    answer = (await home.http.post("/v1/agents/notes/a/messages", json=sent)).json()
    (artifact,) = (await home.get("/agents/notes/a/artifacts"))["items"]
    assert artifact["artifact_id"] == answer["artifacts"][0]["artifact_id"]
    assert (artifact["turn"], artifact["message_id"]) == (3, answer["message_id"])
    path = f"/v1/agents/notes/a/artifacts/{artifact['artifact_id']}"
    content = await home.http.get(path)
    assert (content.text, content.headers["etag"]) == ("<p>report</p>", f'"{artifact["hash"]}"')
    assert content.headers["content-disposition"] == "attachment; filename*=UTF-8''report.html"
    assert (await home.http.get(path, headers={"Range": "bytes=3-8"})).text == "report"
    assert (await home.http.head(path)).headers["content-length"] == "13"
    assert (await home.get("/agents/notes/a/artifacts", turn=2))["items"] == []
    await home.send("notes/b", "hi")
    other = path.replace("/a/", "/b/")
    assert (await home.error("GET", other, 404))["code"] == "unknown_artifact"
    assert (await home.error("GET", f"{path}x", 404))["code"] == "unknown_artifact"
