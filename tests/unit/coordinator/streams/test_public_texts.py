"""Texts of errors for clients of other machines name no place on the server."""

from __future__ import annotations

import pytest

from coordinator.streams.public_texts import public_frame, public_text


@pytest.mark.parametrize(
    ("text", "public"),
    [
        (
            "the process died while it imported /srv/app/hello.py: exit status 3; /srv/app/.podium/hosts.log says more",
            "the process died while it imported hello.py: exit status 3; hosts.log says more",
        ),
        ("/srv/app/hello.py, line 3: SyntaxError", "hello.py, line 3: SyntaxError"),
        ("no file '/srv/app/hello.py'", "no file 'hello.py'"),
        ("the directory /srv/app/ is full", "the directory a directory is full"),
        ("no agent hello/alice in this home", "no agent hello/alice in this home"),
        ("see https://example.org/a/b/c and src/app/x.py", "see https://example.org/a/b/c and src/app/x.py"),
        ("/openapi.json lists what is", "/openapi.json lists what is"),
        ("turn 3/4 of 1/2/3", "turn 3/4 of 1/2/3"),
    ],
)
def test_the_last_name_stands_for_a_path(text: str, public: str) -> None:
    assert public_text(text) == public


@pytest.mark.parametrize(
    "kind", ["HostDied", "AgentFileBroken", "AgentLoadError", "HostLost", "StorageRefused", "ModelError"]
)
def test_frames_of_podiums_own_errors_name_no_path(kind: str) -> None:
    for frame_type in ("error", "turn_retry"):
        frame = {"type": frame_type, "error": {"type": kind, "message": "/srv/app/hello.py is broken"}, "attempt": 1}
        found = public_frame(frame)
        assert found == {**frame, "error": {"type": kind, "message": "hello.py is broken"}}


def test_what_an_agent_says_is_left_as_it_is() -> None:
    frame = {"type": "error", "error": {"type": "ValueError", "message": "/srv/data/a.csv has no header"}}
    assert public_frame(frame) is frame
    assert public_frame({"type": "turn_end", "turn": 1}) == {"type": "turn_end", "turn": 1}
