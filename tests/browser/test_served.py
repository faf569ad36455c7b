"""A new user's first steps with the commands as they are: a project, ``podium up --ui``, and a browser."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import INSTALLED, open_page
from tests.browser.test_page import ANSWER, STATUS, send
from tests.e2e.conftest import EXAMPLES, fresh_home
from tests.model_server.answers import Answer
from tests.model_server.replies import Reply, hold_after
from tests.model_server.server import ModelServer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.ray,
    pytest.mark.skipif(not INSTALLED, reason="there is no Chromium: apt-get install chromium"),
]
PROJECT = """
agents = ["chat.py:ChatAgent"]
[models.chat]
provider = "openai"
model = "m"
base_url = "{url}"
"""


async def test_a_chat_with_a_model_is_reloaded_in_the_middle_of_an_answer_and_goes_on(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "chat.py", tmp_path)
    gate = threading.Event()
    with ModelServer() as vendor, fresh_home({}) as podium:
        (tmp_path / "podium.toml").write_text(PROJECT.format(url=vendor.openai_url))
        options = ["--project", str(tmp_path / "podium.toml"), "--port", "0", "--ui", "--detach", "--json"]
        url = json.loads((await asyncio.to_thread(podium, "up", *options)).stdout)["url"]
        key = (Path(podium.home) / "local.key").read_text().strip()
        vendor.will(Reply(Answer("Good morning to you, Ann."), shape=hold_after(3, gate)))
        try:
            async with open_page(tmp_path / "profile") as page:
                await page.go(f"{url}/ui/#key={key}")
                await page.until("document.querySelector('[name=type]')")
                assert await page.run("location.hash") == ""
                for name, value in (("type", "chat"), ("key", "ann")):
                    await page.run(f"document.querySelector('[name={name}]').focus()")
                    await page.type(value)
                await page.run("document.querySelector('form > button').click()")
                await send(page, "I am Ann.")
                await page.until(f"{STATUS} == 'streaming' && {ANSWER}?.includes('Good')")
                assert "Ann." not in await page.run(ANSWER)
                await page.run("location.reload()")
                await page.until(f"{STATUS} == 'streaming' && {ANSWER}?.includes('Good')")
                gate.set()
                await page.until(f"{STATUS} == 'ready' && {ANSWER}?.includes('Good morning to you, Ann.')")
                await send(page, "Who am I?")
                await page.until(f"{STATUS} == 'ready' && {ANSWER}?.includes('Who am I?')")
                assert await page.run("document.querySelectorAll('#messages > li').length") == 4
                assert {urlsplit(each).netloc for each in page.requested} == {urlsplit(url).netloc}
        finally:
            gate.set()
            podium("down")
        first, second = vendor.requests
        asked = [message["content"] for message in second.body["messages"]]
        assert [message["content"] for message in first.body["messages"]] == asked[:2]
        assert asked[1:] == ["I am Ann.", "Good morning to you, Ann.", "Who am I?"]
