"""A new user's first steps in a browser: talk to an agent, load the page again in the middle of its answer, go on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coordinator.access.caller import OpenAccess
from coordinator.gateway.app import create_app
from coordinator.streams.home_streams import HomeStreams
from tests.browser.chromium import INSTALLED, Page, open_page
from tests.npm.chatter import go_on, served
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


async def test_a_page_that_is_loaded_again_in_the_middle_of_an_answer_goes_on(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as home,
        HomeStreams(home.home.fleet.client, home.home.agents) as streams,
        on_a_socket(create_app(home.home.agents, OpenAccess(), streams, page=True)) as url,
        open_page(tmp_path / "profile") as page,
    ):
        await page.go(f"{url}/ui/")
        await page.until("document.querySelector('[name=type]')")
        for name, value in (("type", "chatter"), ("key", "alice")):
            await page.run(f"document.querySelector('[name={name}]').focus()")
            await page.type(value)
        await page.run("document.querySelector('form > button').click()")
        await send(page, "begun\nwait\nended")
        await page.until(f"{ANSWER}?.includes('begun')")
        await page.run("location.reload()")
        await page.until(f"{STATUS} == 'streaming' && {ANSWER}?.includes('begun')")
        go_on()
        await page.until(f"{STATUS} == 'ready' && {ANSWER}?.includes('begunended')")
        await send(page, "more")
        await page.until(f"{STATUS} == 'ready' && {ANSWER}?.includes('more')")
        assert await page.run("document.querySelectorAll('#messages > li').length") == 4
        assert await home.heard("alice") == ["begun\nwait\nended", "more"]
        # The agent was new at first; else nothing is to be said: no script failed, and the policy forbade nothing.
        missing = "Failed to load resource: the server responded with a status of 404 (Not Found)"
        assert set(page.log) <= {missing}
        assert {urlsplit(each).netloc for each in page.requested} == {urlsplit(url).netloc}
        streams.close()
