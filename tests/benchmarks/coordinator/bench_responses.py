"""What a response costs before its model is asked: building the context of a long session.

Rows:

* a session of 500 messages without payloads (250 questions, 250 responses, 250 answers) with a pinned bundle of 1 MB,
  on a real home: the time to build the context of its next response, against the first build by a process that has read
  nothing of it. Between two builds two events and a response are added, as the loop of a client does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.home import Home
from coordinator.responses.context import ContextBuilder, context_messages
from coordinator.responses.items import user_item
from coordinator.responses.reading import SessionReader
from tests.unit.coordinator.responses.loops import Loop

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

MESSAGES = 500
BUNDLE_BYTES = 1_000_000
FIRST, NEXT = 5, 20


def run() -> list[Row]:
    """Measure it."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        home = Home(Path(folder) / "home").create()
        store, blobs = home.journal(), home.blobs()
        try:
            loop = Loop(store, blobs, IdSource(), SystemClock())
            loop.open("word " * (BUNDLE_BYTES // 5))
            for number in range(MESSAGES // 2):
                loop.turn(f"question {number}: " + "why " * 20, f"answer {number}: " + "because " * 50)
            reader = SessionReader(store, blobs, SystemClock())
            first = [_build(ContextBuilder(), reader, loop) for _ in range(FIRST)]
            builder, again = ContextBuilder(), []
            _build(builder, reader, loop)
            for number in range(NEXT):
                loop.turn(f"further question {number}", "answer")
                again.append(_build(builder, reader, loop))
        finally:
            store.close()
            blobs.close()
    first_s, again_s = statistics.median(first), statistics.median(again)
    floor = f"{again_s * 1000:.2f} ms against {first_s * 1000:.1f} ms"
    name = f"context of {MESSAGES} messages and 1 MB, next against first build"
    return [{"name": name, "value": again_s / first_s, "unit": "x", "target": "<= 0.1", "floor": floor}]


def _build(builder: ContextBuilder, reader: SessionReader, loop: Loop) -> float:
    """Return the time of one build, s."""
    began_s = time.perf_counter()
    context = builder.build(reader, loop.tenant, loop.session_id)
    messages = context_messages(context, None, [user_item("and now?")])
    took_s = time.perf_counter() - began_s
    assert len(messages) >= MESSAGES + 2
    assert messages[1].text.startswith("question 0")
    return took_s
