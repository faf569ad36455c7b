"""The page in a browser: a chat that is loaded again in the middle of an answer, changed, answered again, cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coordinator.access.caller import OpenAccess
from coordinator.gateway.app import AppOptions, create_app
from coordinator.streams.home_streams import HomeStreams
from tests.browser.chromium import INSTALLED, Page, open_page
from tests.npm.chatter import Served, go_on, served
from tests.unit.coordinator.gateway.test_streams import on_a_socket

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.skipif(not INSTALLED, reason="there is no Chromium: apt-get install chromium"),
]
STATUS = "document.querySelector('#status')?.textContent"
ANSWER = "[...document.querySelectorAll('li.assistant')].at(-1)?.innerText"


async def send(page: Page, text: str) -> None:
    await page.until(f"{STATUS} == 'ready'")
    await page.run("document.querySelector('textarea').focus()")
    await page.type(text)
    await page.until("!document.querySelector('form > button').disabled")
    await page.run("document.querySelector('form > button').click()")


async def click(page: Page, text: str) -> None:
    """Click the last button with a text, once it is there."""
    button = f"[...document.querySelectorAll('button')].findLast((each) => each.textContent == '{text}')"
    await page.until(f"{button} && !{button}.disabled")
    await page.run(f"{button}.click()")


async def answered(page: Page, *texts: str) -> None:
    """Wait until the page is ready, and its last answer has some texts."""
    await page.until(" && ".join([f"{STATUS} == 'ready'", *(f"{ANSWER}?.includes('{text}')" for text in texts)]))


@asynccontextmanager
async def chat_page(tmp_path: Path) -> AsyncIterator[tuple[Served, Page]]:
    """Open the page at a chat with the agent ``chatter/alice``."""
    async with (
        served(tmp_path) as home,
        HomeStreams(home.home.fleet.client, home.home.agents) as streams,
        on_a_socket(create_app(home.home.agents, OpenAccess(), streams, options=AppOptions(page=True))) as url,
        open_page(tmp_path / "profile") as page,
    ):
        await page.go(f"{url}/ui/")
        await page.until("document.querySelector('[name=type]')")
        for name, value in (("type", "chatter"), ("key", "alice")):
            await page.run(f"document.querySelector('[name={name}]').focus()")
            await page.type(value)
        await page.run("document.querySelector('form > button').click()")
        yield home, page
        # The agent was new at first; else nothing is to be said: no script failed, and the policy forbade nothing.
        missing = "Failed to load resource: the server responded with a status of 404 (Not Found)"
        assert set(page.log) <= {missing}
        assert {urlsplit(each).netloc for each in page.requested if each[:5] != "blob:"} == {urlsplit(url).netloc}
        streams.close()


async def test_a_page_that_is_loaded_again_in_the_middle_of_an_answer_goes_on(tmp_path: Path) -> None:
    async with chat_page(tmp_path) as (home, page):
        await send(page, "begun\nwait\nended")
        await page.until(f"{ANSWER}?.includes('begun')")
        await page.run("location.reload()")
        await page.until(f"{STATUS} == 'streaming' && {ANSWER}?.includes('begun')")
        go_on()
        await answered(page, "begunended")
        await send(page, "more")
        await answered(page, "more")
        assert await page.run("document.querySelectorAll('#messages > li').length") == 4
        assert await home.heard("alice") == ["begun\nwait\nended", "more"]


async def test_messages_are_changed_answered_again_and_cancelled(tmp_path: Path) -> None:
    async with chat_page(tmp_path) as (home, page):
        await send(page, "one\nartifact a.txt")
        await answered(page, "one", "a.txt", "turn 1")
        await send(page, "two")
        await answered(page, "two", "turn 2")
        await click(page, "Edit")
        await page.run("document.querySelector('textarea').select()")
        await page.type("other")
        await click(page, "Change")
        await answered(page, "other", "turn 4")  # the rewind is a turn, too
        await click(page, "Again")
        await answered(page, "other", "turn 6")
        assert await page.run("document.querySelectorAll('#messages > li').length") == 4
        await send(page, "begun\nwait\nended")
        await page.until(f"{STATUS} == 'streaming' && {ANSWER}?.includes('begun')")
        await click(page, "Cancel")
        await page.until(f"{STATUS} == 'ready'")
        go_on()
        await send(page, "after")
        await answered(page, "after", "turn ")
        assert await home.heard("alice") == ["one\nartifact a.txt", "other", "after"]
