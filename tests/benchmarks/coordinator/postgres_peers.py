"""Peers that keep turns in PostgreSQL: LangGraph with its saver, and DBOS. Each turn has 600 bytes in and 600 out.

Both take work from 8 threads at once; conversations of LangGraph are as many as the agents. LangGraph's turns are
durable before the next one begins (``durability="sync"``); a workflow of DBOS has one step.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from urllib.parse import quote

from dbos import DBOS, DBOSConfig
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from tests.benchmarks.podium.turn_load import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THREADS = 8
TURNS = 200


class Conversation(TypedDict):
    """LangGraph's state: all messages, appended to."""

    messages: Annotated[list[AnyMessage], add_messages]


@contextmanager
def langgraph(conninfo: str, conversations: int) -> Iterator[Callable[[], float]]:
    """Yield what returns turns a second of many conversations at once."""
    options = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0}
    with ConnectionPool(conninfo, min_size=THREADS, max_size=THREADS, kwargs=options) as pool:
        saver = PostgresSaver(pool)
        saver.setup()
        builder = StateGraph(Conversation)
        builder.add_node("answer", lambda _: {"messages": [AIMessage(TEXT)]})
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        graph = builder.compile(checkpointer=saver)

        def turn(number: int) -> None:
            config: Any = {"configurable": {"thread_id": str(number % conversations)}}
            graph.invoke({"messages": [HumanMessage(TEXT)]}, config, durability="sync")

        yield lambda: _rate(turn)


@contextmanager
def dbos(conninfo: str) -> Iterator[Callable[[], float]]:
    """Yield what returns workflows a second."""
    parts = conninfo_to_dict(conninfo)
    url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(str(parts['host']))}"
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, run_admin_server=False, log_level="ERROR"))

    answer: Any = DBOS.step()(_answer)

    def turn(text: str) -> Any:
        return answer(text)

    workflow: Any = DBOS.workflow()(turn)
    DBOS.launch()
    yield lambda: _rate(lambda _: workflow(TEXT))
    DBOS.destroy()


def _answer(_: str) -> str:
    return TEXT


def _rate(turn: Callable[[int], object]) -> float:
    with ThreadPoolExecutor(THREADS) as threads:
        began_s = time.perf_counter()
        list(threads.map(turn, range(TURNS)))
        return TURNS / (time.perf_counter() - began_s)
