"""Log files: bounded, whichever process writes to them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from coordinator.logs import rotate_logs

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_that_has_grown_is_begun_anew_and_its_end_kept(tmp_path: Path) -> None:
    log, small = tmp_path / "a.log", tmp_path / "b.log"
    small.write_bytes(b"x" * 100)
    with log.open("ab", buffering=0) as writer:  # a process that goes on writing
        writer.write(b"first " * 50)
        rotate_logs(tmp_path, 100)
        assert log.read_bytes() == b""
        assert (tmp_path / "a.log.1").read_bytes() == (b"first " * 50)[-100:]
        writer.write(b"second")
        rotate_logs(tmp_path, 100)
        assert log.read_bytes() == b"second"
        writer.write(b"third" * 30)
        rotate_logs(tmp_path, 100)
    assert (tmp_path / "a.log.1").read_bytes() == (b"second" + b"third" * 30)[-100:]
    assert (tmp_path / "a.log.1").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "b.log"]
    assert small.stat().st_size == 100


def test_a_service_that_hangs_says_where_and_ends() -> None:
    code = "import time; from coordinator.service.daemon import _start_watchdog as f; f(0.2); time.sleep(60)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert 'File "<string>", line 1 in <module>' in ended.stderr


def test_lines_of_every_logger_carry_the_agent_and_the_turn() -> None:
    code = (
        "import logging, structlog; from coordinator.logs import configure_logging; configure_logging()\n"
        "with structlog.contextvars.bound_contextvars(agent_id='hello/alice', epoch=3, turn=12):\n"
        "    logging.getLogger('of.a.library').warning('careful')\n"
        "    structlog.stdlib.get_logger('of.podium').info('searched', hits=7)\n"
        "logging.getLogger('of.a.library').warning('outside')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    library, podium, outside = done.stdout.splitlines()
    assert library.endswith("[WARNING] of.a.library: careful agent_id=hello/alice epoch=3 turn=12")
    for field in ("searched", "agent_id=hello/alice", "epoch=3", "turn=12", "hits=7"):
        assert field in podium
    assert outside.endswith("of.a.library: outside")
