"""The processes of `bench_gateway`: a scripted service, a gateway over it, and a bare Starlette app with its bytes.

Each is ``python -m tests.benchmarks.coordinator.gateway_sides SIDE …``, says ``ready`` with what the others need, and
ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

AGENTS = 50
TOKENS_PER_S = 20
START = {"type": "turn_start", "turn": 1, "attempt": 1, "event_id": "evt_01HF7YAT00AAAAAAAAAAAAAAAA"}
REPLY = "rpl_01HF7YAT00AAAAAAAAAAAAAAAA"


def token(number: int) -> str:
    """A token: its number, when it was said (s on the machine's monotonic clock), and some letters."""
    return f"{number}:{time.monotonic():.4f} "


async def say_tokens(agents: int, say: Callable[[int, int, str], None], stop: asyncio.Event) -> None:
    """Have each agent say a token in its turn, evenly over time; call with agent, number and token."""
    began_s, number = time.monotonic(), 0
    while not stop.is_set():
        for agent in range(agents):
            wait_s = began_s + (number + agent / agents) / TOKENS_PER_S - time.monotonic()
            if wait_s > 0.002:  # the loop's precision
                await asyncio.sleep(wait_s)
            say(agent, number, token(number))
        number += 1
        await asyncio.sleep(0)


# -- the service -------------------------------------------------------------------------------------------------------


async def _service(home_path: str) -> None:
    """Speak the service's protocol at a home's socket. All agents begin to speak when all are followed."""
    from coordinator.channel import pack, read_packet
    from coordinator.home import Home
    from coordinator.service.protocol import PROTOCOL

    messages = message_ids(home_path)
    followers: dict[str, Callable[[dict[str, Any]], None]] = {}
    all_there = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def answer(request: dict[str, Any], **what: Any) -> None:
            if writer.is_closing():  # the gateway has ended
                return
            writer.write(pack({"id": request["id"], **what}))

        while data := await read_packet(reader):
            request = json.loads(data)
            if request["op"] != "follow":
                answer(request, result={"protocol": PROTOCOL, "notice": None})
                continue
            message_id = request["message_id"]

            def say(frame: dict[str, Any], request: Any = request, message_id: str = message_id) -> None:
                answer(request, frames=[{"message_id": message_id, **frame}])

            say(START)
            say({"type": "message_start", "reply_id": REPLY, "ordinal": 1})
            followers[message_id] = say
            if len(followers) == len(messages):
                all_there.set()

    def say(agent: int, number: int, text: str) -> None:
        followers[messages[agent]]({"type": "message_update", "reply_id": REPLY, "delta": text})

    path = Home(Path(home_path)).socket_path
    path.parent.mkdir(parents=True, exist_ok=True)
    server = await asyncio.start_unix_server(serve, path=str(path))
    stop = _ends()
    print("ready", flush=True)
    async with server:
        ending = asyncio.ensure_future(stop.wait())
        await asyncio.wait({ending, asyncio.ensure_future(all_there.wait())}, return_when=asyncio.FIRST_COMPLETED)
        await say_tokens(AGENTS, say, stop)


def message_ids(home_path: str) -> list[str]:
    """The message of each agent."""
    found: list[str] = json.loads((Path(home_path) / "messages.json").read_text())
    return found


# -- the servers -------------------------------------------------------------------------------------------------------


async def _gateway(home_path: str) -> None:
    """Serve the home as `podium up` does, but for the service, which another process plays."""
    from chronicle.clock import SystemClock
    from coordinator.access.caller import OpenAccess
    from coordinator.gateway.app import create_app
    from coordinator.gateway.process.serving import server_config
    from coordinator.gateway.protection.rules import Rules
    from coordinator.home import Home
    from coordinator.operations.agents import HomeAgents
    from coordinator.service.link import ServiceLink
    from coordinator.streams.home_streams import HomeStreams

    home = Home(Path(home_path)).open()
    async with ServiceLink(home, start=False) as link:
        agents = HomeAgents(home, link)
        async with HomeStreams(link.client, agents) as streams:
            await _serve(
                server_config(create_app(agents, OpenAccess(), streams), Rules(), SystemClock()), streams.close
            )
        agents.close()


async def _bare(home_path: str) -> None:
    """Stream the bytes of the gateway from a Starlette app that has nothing else to do."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    messages = message_ids(home_path)
    readers: list[set[asyncio.Queue[bytes]]] = [set() for _ in messages]
    said = 0

    def say(agent: int, number: int, text: str) -> None:
        nonlocal said
        said += len(text)
        frame = {"message_id": messages[agent], "type": "message_update", "reply_id": REPLY, "delta": text}
        position = f"{messages[agent]}/1-AAAAAAAA.1.0.0:1-{said}"
        event = f"id: {position}\ndata: {json.dumps(frame, separators=(',', ':'))}\n\n".encode()
        for queue in readers[agent]:
            queue.put_nowait(event)

    async def stream(request: Request) -> StreamingResponse:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        mine = readers[messages.index(request.path_params["message_id"])]

        async def events() -> AsyncIterator[bytes]:
            mine.add(queue)
            try:
                while True:
                    yield await queue.get()
            finally:
                mine.discard(queue)

        return StreamingResponse(events(), media_type="text/event-stream")

    stop = asyncio.Event()
    saying = asyncio.create_task(say_tokens(AGENTS, say, stop))
    app = Starlette(routes=[Route("/v1/agents/bench/{key}/messages/{message_id}", stream)])
    await _serve(uvicorn.Config(app, lifespan="off", ws="none", log_config=None, access_log=False), stop.set)
    saying.cancel()


async def _serve(config: Any, at_the_end: Callable[[], None]) -> None:
    import uvicorn

    config.timeout_graceful_shutdown = 2
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = uvicorn.Server(config)
    stop = _ends()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    print("ready", listener.getsockname()[1], flush=True)
    await stop.wait()
    at_the_end()
    server.should_exit = True
    await serving


def _ends() -> asyncio.Event:
    """Return an event that is set at the end of the standard input."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def read() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, daemon=True).start()
    return ended


@asynccontextmanager
async def side(name: str, *arguments: str) -> AsyncIterator[tuple[int, str]]:
    """Run a side as a process while the context lasts; yield its id and what it said with ``ready``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        name,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode().split()
        if not line or line[0] != "ready":
            raise RuntimeError(f"{name} ended with {await process.wait()}")
        yield process.pid, "".join(line[1:])
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run({"service": _service, "gateway": _gateway, "bare": _bare}[sys.argv[1]](sys.argv[2]))
