"""The same conversation through LangGraph with its SQLite saver: how fast each is when it is 900 turns old.

Both keep each turn of 1.2 KB (a message of 600 bytes, a reply of 600 bytes) durably before the next begins, in SQLite
with a write-ahead log and ``synchronous=FULL``; LangGraph with ``durability="sync"``. Timed are turns 901 to 1,000.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from tests.benchmarks.__main__ import Row
from tests.benchmarks.podium.turn_load import TEXT, Talker, harness, turns_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD = 900
TIMED = 100
RUNS = 5


class Conversation(TypedDict):
    """LangGraph's state: all messages, appended to."""

    messages: Annotated[list[AnyMessage], add_messages]


def _answer(state: Conversation) -> dict[str, Any]:
    return {"messages": [AIMessage(TEXT)]}


def compiled(connection: sqlite3.Connection) -> Callable[[str], None]:
    """Return what goes on with a conversation, given by its id, by one durable turn."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    builder = StateGraph(Conversation)
    builder.add_node("answer", _answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(checkpointer=SqliteSaver(connection))

    def turn(conversation: str) -> None:
        config: Any = {"configurable": {"thread_id": conversation}}
        graph.invoke({"messages": [HumanMessage(TEXT)]}, config, durability="sync")

    return turn


@contextmanager
def _langgraph(directory: Path) -> Iterator[Callable[[int], float]]:
    """Return what goes on with a conversation by so many turns, and says how many seconds that took."""
    with closing(sqlite3.connect(directory / "langgraph.db", check_same_thread=False)) as connection:
        turn = compiled(connection)

        def turns(count: int) -> float:
            began_s = time.perf_counter()
            for _ in range(count):
                turn("one")
            return time.perf_counter() - began_s

        yield turns


async def _measure(directory: Path) -> tuple[float, float]:
    """Return the seconds of some turns of each, a few of one and of the other in turn; both are `OLD` turns old."""
    theirs_s, ours_s = [], []
    with _langgraph(directory) as turns:
        async with harness(Talker, directory) as agent:
            turns(OLD)
            await turns_s(agent, OLD)
            for _ in range(RUNS):
                theirs_s.append(turns(TIMED // RUNS))
                ours_s.append(await turns_s(agent, TIMED // RUNS))
    return median(theirs_s), median(ours_s)


def run() -> list[Row]:
    """Measure and return the row."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as directory:
        theirs, ours = asyncio.run(_measure(Path(directory)))
    return [
        {
            "name": f"turns {OLD + 1}-{OLD + TIMED}, in turns a second",
            "value": round(theirs / ours, 1),
            "unit": "x",
            "target": ">= 10",
            "floor": f"LangGraph with its SQLite saver, {TIMED / RUNS / theirs:.0f} turns a second",
        }
    ]
