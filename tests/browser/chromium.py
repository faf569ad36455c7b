"""Headless Chromium, driven over a pair of pipes by the DevTools protocol: no package is needed for that."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE_S

__all__ = ["INSTALLED", "Page", "open_page"]

_PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
INSTALLED = _PROGRAM is not None
_START = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from descriptor 3, and writes answers to 4."""


class Page:
    """A page of a browser."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._calls = 0
        self._session: str | None = None
        self.log: list[str] = []
        """What the console of the page, and the browser, said: errors of scripts and of the content security policy."""
        self.requested: list[str] = []
        """The URLs that the page asked for."""

    async def read(self) -> None:
        """Read what the browser says, to its end."""
        while message := await self._reader.readuntil(b"\0"):
            told = json.loads(message[:-1])
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
                continue
            match told["method"]:
                case "Runtime.consoleAPICalled":
                    self.log.append(str([argument.get("value") for argument in told["params"]["args"]]))
                case "Runtime.exceptionThrown":
                    self.log.append(str(told["params"]["exceptionDetails"]))
                case "Log.entryAdded":
                    self.log.append(told["params"]["entry"]["text"])
                case "Network.requestWillBeSent":
                    self.requested.append(told["params"]["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._calls += 1
        answer = self._answers[self._calls] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session is not None else {}
        self._writer.write(
            json.dumps({"id": self._calls, "method": method, "params": parameters, **session}).encode() + b"\0"
        )
        await self._writer.drain()
        async with asyncio.timeout(DEADLINE_S):
            told = await answer
        assert "error" not in told, (method, told["error"])
        result: dict[str, Any] = told["result"]
        return result

    async def attach(self) -> None:
        """Open the page itself."""
        target = await self.call("Target.createTarget", url="about:blank")
        self._session = (await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True))[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def go(self, url: str) -> None:
        """Load a URL."""
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until an expression is true in the page, whatever is loaded into it."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                told = await self.call("Runtime.evaluate", expression=f"!!({condition})", returnByValue=True)
                if told["result"].get("value"):
                    return
                await asyncio.sleep(0.05)

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def screenshot(self, path: Path) -> None:
        """Save what the page shows, as PNG."""
        path.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"]))


@asynccontextmanager
async def open_page(profile: Path, *, width: int = 900, height: int = 700) -> AsyncIterator[Page]:
    """Run a browser with one page while the context lasts.

    Args:
        profile: a directory for what it stores.
    """
    assert _PROGRAM is not None
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio"]
    offline = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _START,
        str(commands),
        str(answers),
        _PROGRAM,
        *flags,
        *offline,
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        pass_fds=(commands, answers),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(commands)
    os.close(answers)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    reading_pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser, "rb", 0)
    )
    writing_pipe, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(to_browser, "wb", 0)
    )
    page = Page(reader, asyncio.StreamWriter(writing_pipe, protocol, None, loop))
    reading = asyncio.create_task(page.read())
    try:
        await page.attach()
        yield page
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        if process.returncode is None:
            process.kill()
        await process.wait()
        reading_pipe.close()
        writing_pipe.close()
