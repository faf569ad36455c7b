"""The template of workers, without a Ray: whom it forks for."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.ray.embedded import worker_launcher, worker_template
from coordinator.ray.embedded.worker_launcher import SOCKET

RAYLET, JOB = os.getpid(), "01000000"
FORKED_TWICE = """
import os
from coordinator.ray.embedded import worker_template
worker_template._import_all()
from ray import ObjectRef
for _ in range(2):
    child = os.fork()
    if child == 0:
        os.write(1, ObjectRef.from_random().hex().encode() + b" ")
        os._exit(0)
    os.waitpid(child, 0)
"""


def request(run_dir: Path, output: Path, job_id: str) -> socket.socket:
    """Connect and send a request, as a launcher does; return the connection."""
    environment = f"RAY_RAYLET_PID={RAYLET}\0RAY_JOB_ID={job_id}"
    body = "\0\0".join([os.fspath(run_dir), f"--temp-dir={run_dir}/ray", environment]).encode()
    launcher = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    launcher.connect(os.fspath(run_dir / SOCKET))
    with output.open("ab") as file:
        socket.send_fds(launcher, [len(body).to_bytes(4, "big")], [file.fileno()] * 3)
    launcher.sendall(body)
    return launcher


def test_no_worker_is_forked_for_a_launcher_that_has_given_up_or_is_of_another_job(tmp_path: Path) -> None:
    given_up, others = tmp_path / "given-up", tmp_path / "others"
    template = worker_template.start(tmp_path, tmp_path / "log", RAYLET, JOB)
    try:
        request(tmp_path, given_up, JOB).close()  # before the imports are done
        with request(tmp_path, others, "02000000") as launcher:
            launcher.settimeout(120)
            assert launcher.recv(1) == b"", "it was served"
        # A worker that was forked would end soon, with a traceback: the request has not all that one needs.
        children = Path(f"/proc/{template.pid}/task/{template.pid}/children").read_text().split()
        assert children == []
        assert (given_up.read_text(), others.read_text()) == ("", "")
    finally:
        template.communicate(timeout=120)
    assert template.returncode == 0


def test_the_template_waits_for_its_workers_and_kills_those_that_do_not_end() -> None:
    """Ray's processes write to the directory that the service removes at its end."""
    with selectors.DefaultSelector() as selector:
        workers = [subprocess.Popen(["sleep", seconds]) for seconds in ("0.3", "0", "600")]
        for worker in workers:
            _ = selector.register(os.pidfd_open(worker.pid), selectors.EVENT_READ, worker.pid)
        worker_template._await_workers(selector, patience_s=1)
        assert not selector.get_map()
        for worker in workers:
            with pytest.raises(ChildProcessError):
                os.waitpid(worker.pid, 0)
            worker.returncode = 0  # it is reaped


def test_a_launcher_after_the_end_of_its_service_starts_nothing(tmp_path: Path) -> None:
    removed = tmp_path / "run" / "ray"
    run = subprocess.run(
        [sys.executable, worker_launcher.__file__, f"--temp-dir={removed}"],
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert run.stdout + run.stderr == b""
    assert not removed.parent.exists()


def test_workers_draw_different_random_ids() -> None:
    """Those that start at the same moment would else store their first objects under one id, and one would die."""
    run = subprocess.run([sys.executable, "-c", FORKED_TWICE], capture_output=True, text=True, timeout=300, check=True)
    first, second = run.stdout.split()
    assert first != second
