"""The stream of a message as a gateway sends it, for scripts."""

from __future__ import annotations

from typing import Any

AGENT = "hello/alice"
MESSAGE = "msg_1"


def frame(kind: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "message_id": MESSAGE, **keys}


ACCEPTED = ("msg_1/0", frame("accepted", position=1, before=0))
TURN = ("msg_1/1.0.0.0", frame("turn_start", turn=1, attempt=1))
START = ("msg_1/1.1.0.0:1-0", frame("message_start", reply_id="r"))
HEL = ("msg_1/1.1.0.0:1-3", frame("message_update", reply_id="r", delta="Hel"))
LO = ("msg_1/1.1.0.0:1-5", frame("message_update", reply_id="r", delta="lo"))
END = ("msg_1/1.1.0.0", frame("message_end", reply_id="r", text="Hello"))
COMMIT = ("msg_1/committed", frame("turn_end", turn=1, version=4, patch=[]))
LAST = ("msg_1/end", frame("agent_end", agent=AGENT, outcome="committed"))
STREAM = [ACCEPTED, TURN, START, HEL, LO, END, COMMIT, LAST]
ANSWER = {
    "message_id": MESSAGE,
    "agent": AGENT,
    "turn": 1,
    "version": 4,
    "text": "Hello",
    "data": None,
    "replies": [{"reply_id": "r", "text": "Hello"}],
    "artifacts": [],
}
RECORD = {
    "message_id": MESSAGE,
    "agent": AGENT,
    "position": 1,
    "status": "consumed",
    "attempts": 0,
    "admitted_at": 1,
    "answer": ANSWER,
    "error": None,
}
