from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.line_input import DescriptorLines, interrupts_handled_by

if TYPE_CHECKING:
    from pathlib import Path


async def all_lines(lines: DescriptorLines) -> list[str]:
    found = []
    while (line := await lines.next()) is not None:
        found.append(line)
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one\n", ["one"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"\n\n", ["", ""]),
        (b"\xff\n", ["\ufffd"]),
        (b"x" * 200_000 + b"\ny", ["x" * 200_000, "y"]),
    ],
)
def test_a_file_is_read_to_its_end(tmp_path: Path, data: bytes, expected: list[str]) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert asyncio.run(all_lines(DescriptorLines(descriptor))) == expected
    finally:
        os.close(descriptor)


def test_a_pipe_gives_each_line_when_it_is_there() -> None:
    async def talk() -> None:
        lines = DescriptorLines(reading)
        os.write(writing, b"one\ntw")
        assert await lines.next() == "one"
        waiting = asyncio.ensure_future(lines.next())
        await asyncio.sleep(0)
        os.write(writing, b"o\n")
        assert await waiting == "two"
        os.close(writing)
        assert await lines.next() is None

    reading, writing = os.pipe()
    try:
        asyncio.run(talk())
        assert os.get_blocking(reading)
    finally:
        os.close(reading)


def test_ctrl_c_is_handled_while_it_may_be_and_leaves_otherwise() -> None:
    presses: list[int] = []

    def handle() -> bool:
        presses.append(1)
        return len(presses) < 2

    async def talk() -> None:
        with interrupts_handled_by(handle):
            os.kill(os.getpid(), signal.SIGINT)
            while len(presses) < 1:
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(talk())
    assert len(presses) == 2


def test_what_ctrl_c_did_before_is_put_back() -> None:
    async def talk() -> None:
        before = signal.getsignal(signal.SIGINT)
        with interrupts_handled_by(lambda: True):
            assert signal.getsignal(signal.SIGINT) != before
        assert signal.getsignal(signal.SIGINT) == before

    asyncio.run(talk())
