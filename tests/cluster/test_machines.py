"""The machines of the cluster's tests: what each has of its own, and what a cut cable and a loss of power do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cluster.machines import Machine, Network, new_network
from tests.leftovers import marked_processes
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORT = 7000
ECHO = f"""
import socket
server = socket.create_server(("", {PORT}))
while True:
    peer, _ = server.accept()
    while text := peer.recv(100):
        peer.send(text)
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with new_network(tmp_path / "network") as network:
        yield network


@contextlib.contextmanager
def connected(here: Machine, there: Machine) -> Iterator[socket.socket]:
    """A connection between machines to a process that echoes."""

    def connect() -> socket.socket | None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((there.address, PORT), 30)
        return None

    with here.network():
        connection = wait_until(connect)
    assert connection is not None
    with connection:
        assert echoed(connection, b"hello") == b"hello"
        yield connection


def echoed(connection: socket.socket, text: bytes) -> bytes:
    connection.send(text)
    return connection.recv(len(text))


def heard(connection: socket.socket) -> bytes | None:
    """What a connection has received and nobody has read; None if nothing, ``b""`` if the peer has ended it."""
    connection.setblocking(False)
    try:
        return connection.recv(100)
    except BlockingIOError:
        return None
    finally:
        connection.settimeout(30)


def test_each_has_its_own_name_processes_and_memory_and_finds_the_others(network: Network) -> None:
    one, two = network.add("one", "two")
    two.start("python", "-c", ECHO)
    with connected(one, two):
        pass  # it listens
    mark = "for file in /tmp/mark /dev/shm/mark; do test -e $file || echo none; touch $file; done"
    look = f"echo $HOSTNAME; {mark}; cat /proc/[0-9]*/comm"
    for machine in (one, two):
        name, *marks = machine.run("bash", "-c", look).stdout.splitlines()
        assert name == machine.name
        assert marks[:2] == ["none", "none"]
        assert ("python" in marks) == (machine is two)
    ask = f"import socket; s = socket.create_connection(('two', {PORT}), 30); s.send(b'hi'); print(s.recv(9))"
    assert one.run("python", "-c", ask).stdout == "b'hi'\n"
    assert one.run("bash", "-c", f"cd {two.directory} && ls").stdout, "the disk is shared, for what tests hand over"


def test_a_cut_cable_says_nothing_and_what_was_sent_meanwhile_comes_when_it_is_mended(network: Network) -> None:
    one, two = network.add("one", "two")
    two.start("python", "-c", ECHO)
    with connected(one, two) as connection:
        two.cut()
        connection.send(b"later")
        assert heard(connection) is None
        assert two.processes(ECHO[:20])
        two.mend()
        assert connection.recv(5) == b"later"


def test_a_machine_without_power_says_nothing_and_has_lost_all_but_its_disk(network: Network) -> None:
    one, two = network.add("one", "two")
    killed = two.start("python", "-c", ECHO)
    with connected(one, two) as connection:
        killed.kill()
        assert killed.wait() == -signal.SIGKILL
        wait_until(lambda: heard(connection) == b"", "the kernel of a machine that has power ends connections")
    server = two.start("python", "-c", ECHO)
    two.run("bash", "-c", "touch /tmp/mark /dev/shm/mark ~/mark; (setsid sleep 1000 &>/dev/null &)")
    with connected(one, two) as connection:
        two.lose_power()
        assert server.wait() == -signal.SIGKILL
        assert heard(connection) is None
        two.boot()
        assert two.processes() == []
        connection.send(b"who is it?")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert two.run("bash", "-c", "ls /tmp /dev/shm ~ | grep mark").stdout == "mark\n"
    two.start("python", "-c", ECHO)
    with connected(one, two) as connection:
        assert echoed(connection, b"again") == b"again"


def test_machines_end_with_the_process_that_has_made_them(tmp_path: Path) -> None:
    program = f"""
import pathlib, sys
from tests.cluster.machines import new_network
with new_network(pathlib.Path({str(tmp_path / "network")!r})) as network:
    [machine] = network.add("one")
    machine.run("bash", "-c", "(setsid sleep 1234567 &>/dev/null &)")
    print("there", flush=True)
    sys.stdin.read()
"""
    before = marked_processes()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"there\n"
        wait_until(lambda: "sleep 1234567" in marked_processes().values())
        os.kill(maker.pid, signal.SIGKILL)
    wait_until(lambda: not marked_processes().keys() - before.keys())


def test_a_process_that_ends_at_once_is_known_by_its_exit_code(network: Network) -> None:
    (machine,) = network.add("one")
    ended = [machine.start("true") for _ in range(20)] + [machine.start("false")]
    assert [each.wait() for each in ended] == [0] * 20 + [1]
    assert not any(each.runs() for each in ended)
