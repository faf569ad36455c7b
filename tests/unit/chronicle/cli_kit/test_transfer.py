"""Progress of a transfer on stderr."""

from __future__ import annotations

import io

from chronicle.cli_kit.transfer import TransferProgress
from chronicle.repository.checkout import Amount


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_written_over() -> None:
    now = 0.0
    stream = Terminal()
    with TransferProgress(stream, lambda: now) as line:
        line.start(Amount(3, 3 * 1024 * 1024))
        for moment in (0.0, 0.05, 0.2):
            now = moment
            line.advance(1024 * 1024, 1)
    assert stream.getvalue().split("\r") == [
        "1 of 3 files, 1.0 of 3.0 MiB",
        "3 of 3 files, 3.0 of 3.0 MiB",
        "3 of 3 files, 3.0 of 3.0 MiB\n",
    ]
    plain = io.StringIO()
    with TransferProgress(plain, lambda: now) as line:
        line.start(Amount(3, 0))
        for moment in (0.0, 0.5, 1.5):
            now = moment
            line.advance(0, 1)
    assert [text.split()[0] for text in plain.getvalue().splitlines()] == ["2", "3", "3"]


def test_a_transfer_that_has_not_begun_shows_nothing() -> None:
    stream = Terminal()
    with TransferProgress(stream):
        pass
    assert not stream.getvalue()
