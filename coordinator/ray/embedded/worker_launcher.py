"""Launcher that Ray's raylet executes for each worker: it has the worker forked from the template, and ends.

The template gets this process's arguments, environment, directory and standard streams. If there is none, because it
was killed, or it refuses, this process becomes the worker; if the service has ended and removed its directory, no
worker is wanted, and none makes the directory anew. As that time is part of the start of each host, it imports
nothing but a few modules of the standard library.
"""

# ruff: noqa: PTH109, PTH112, PTH118, PTH120
# The import of pathlib would take a third of the time of this program.

import os
import socket
import sys

SOCKET = "workers.sock"
"""Of the template, beside Ray's directory. `worker_template.py` has it, too."""
DEADLINE_S = 30.0


def _launch(arguments: list[str], directory: str) -> bool:
    """Have a worker forked; return whether it was.

    Args:
        directory: Ray's, in that of the service.
    """
    parts = [os.getcwd(), "\0".join(arguments), "\0".join(f"{name}={value}" for name, value in os.environ.items())]
    request = "\0\0".join(parts).encode("utf-8", "surrogateescape")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as template:
        template.settimeout(DEADLINE_S)
        try:
            template.connect(os.path.join(os.path.dirname(directory), SOCKET))
            socket.send_fds(template, [len(request).to_bytes(4, "big")], [0, 1, 2])
            template.sendall(request)
            return template.recv(1) == b"+"
        except OSError:
            return False


def _main(arguments: list[str]) -> None:
    directory = next(each.partition("=")[2] for each in arguments if each.startswith("--temp-dir="))
    if _launch(arguments, directory) or not os.path.isdir(directory):
        return
    import importlib.util  # noqa: PLC0415  takes time, and is not used if there is a template

    found = importlib.util.find_spec("ray")
    assert found is not None
    assert found.origin is not None
    worker = os.path.join(os.path.dirname(found.origin), "_private", "workers", "default_worker.py")
    os.execv(sys.executable, [sys.executable, worker, *arguments])  # noqa: S606  as the raylet does


if __name__ == "__main__":
    _main(sys.argv[1:])
