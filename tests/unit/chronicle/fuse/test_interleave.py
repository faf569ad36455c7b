"""What lets requests in while a command runs, and what keeps those that must wait."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import pytest

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Unavailable
from chronicle.fuse.transport import wire
from chronicle.fuse.transport.deferred_requests import DeferredRequests
from chronicle.fuse.transport.interleave import Interleaver
from chronicle.fuse.transport.request_poll import RequestPoll
from chronicle.fuse.transport.wire import Opcode
from chronicle.fuse.watchdog import COMMAND, REQUEST, unwatched_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.fuse.watchdog import Heartbeat

T = TypeVar("T")


def request(number: int, opcode: Opcode = Opcode.MKDIR, body: bytes = b"", thread: int = 0) -> bytes:
    header = wire.IN_HEADER.pack(wire.IN_HEADER.size + len(body), opcode, number, 1, 0, 0, thread, 0, 0)
    return header + body


def test_requests_are_carried_out_in_the_order_in_which_they_came() -> None:
    kept = DeferredRequests()
    for number in (7, 3, 5):
        kept.add(request(number, body=b"%d" % number))
    assert len(kept) == 3
    assert [kept.take() for _ in range(4)] == [*(request(number, body=b"%d" % number) for number in (7, 3, 5)), None]


def test_so_much_is_kept_and_no_more() -> None:
    kept = DeferredRequests(limit_bytes=10_000)
    full = []
    for number in (1, 2):
        kept.add(request(number, Opcode.WRITE, bytes(8_000)))
        full.append(kept.is_full)
    kept.take()
    full.append(kept.is_full)
    for number in range(3, 100):  # short ones count, too
        kept.add(request(number))
    full.append(kept.is_full)
    assert full == [False, True, False, True]


def test_who_got_a_signal_and_lives_waits_on() -> None:
    kept = DeferredRequests()
    kept.add(request(1, thread=threading.get_native_id()))
    kept.add(request(2, thread=1 << 22))  # no such thread: one of another namespace
    for number in (1, 2, 3):
        kept.interrupt(number)
    assert kept.take_killed() == []
    assert len(kept) == 2


class Device:
    """A pipe with a byte for each request."""

    def __init__(self) -> None:
        self.reads, self._writes = os.pipe2(os.O_NONBLOCK)
        self.taken = 0
        self.takes = True
        self.doing: list[int] = []
        self.heartbeat: Heartbeat = unwatched_heartbeat()
        self.looked = 0

    def ask(self, times: int = 1) -> None:
        os.write(self._writes, b"r" * times)

    def take(self) -> bool:
        self.taken += len(os.read(self.reads, 1))
        self.doing.append(self.heartbeat.cells[1])
        return self.takes

    def look(self) -> None:
        self.looked += 1

    def interleave(self, longest_s: float = 60) -> Interleaver:
        self.heartbeat.cells[1] = COMMAND
        return Interleaver(self.reads, self.heartbeat.cells, self.take, self.look, longest_s=longest_s)

    def close(self) -> None:
        os.close(self.reads)
        os.close(self._writes)


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    made.close()


def yield_until(interleaving: Interleaver, over: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not over():
        interleaving.yield_now()
        assert time.monotonic() < until


def test_requests_are_taken_between_two_steps(device: Device) -> None:
    interleaving = device.interleave()
    device.ask(30)
    yield_until(interleaving, lambda: device.taken == 30)
    assert set(device.doing) == {REQUEST}, "one that hangs is known for one"
    assert device.heartbeat.cells[1] == COMMAND
    assert device.heartbeat.cells[0] > 30
    assert device.looked >= 1


def test_work_gets_on_however_many_ask(device: Device) -> None:
    class Endless(Device):
        def take(self) -> bool:
            self.ask()
            return super().take()

    endless = Endless()
    endless.ask()
    interleaving = endless.interleave()
    yield_until(interleaving, lambda: endless.taken > 100)
    endless.close()


def test_nothing_is_taken_any_more_once_it_is_said_so(device: Device) -> None:
    interleaving = device.interleave()
    device.ask(3)
    device.takes = False
    yield_until(interleaving, lambda: device.taken == 1)
    before = device.heartbeat.cells[0]
    yield_until(interleaving, lambda: device.heartbeat.cells[0] > before + 3)
    assert interleaving.run_in_thread(lambda: "done") == "done"
    assert device.taken == 1


def test_requests_are_taken_while_another_thread_works(device: Device) -> None:
    interleaving = device.interleave()
    enough = threading.Event()

    def take() -> bool:
        if device.taken == 9:
            enough.set()
        return Device.take(device)

    interleaving = Interleaver(device.reads, device.heartbeat.cells, take, device.look)
    device.ask(10)
    assert interleaving.run_in_thread(lambda: enough.wait(60)) is True, "it ended only because they were taken"
    assert device.taken == 10


def test_what_another_thread_raises_is_raised_here(device: Device) -> None:
    def fail() -> None:
        raise Unavailable("the store is away")

    with pytest.raises(Unavailable, match="away"):
        device.interleave().run_in_thread(fail)


def test_a_command_that_takes_too_long_is_given_up(device: Device) -> None:
    interleaving = device.interleave(longest_s=0.1)
    with pytest.raises(Unavailable, match="given up"):
        yield_until(interleaving, lambda: False)
    hangs = threading.Event()
    with pytest.raises(Unavailable, match="given up"):
        device.interleave(longest_s=0.1).run_in_thread(lambda: hangs.wait(60))
    hangs.set()


def test_work_is_done_without_descriptors_for_another_thread(device: Device) -> None:
    interleaving = device.interleave()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert interleaving.run_in_thread(threading.get_native_id) == threading.get_native_id()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_buffer_lets_others_in_with_each_blob_and_while_it_puts() -> None:
    calls: list[str] = []

    class Interleaving:
        def yield_now(self) -> None:
            calls.append("breathe")

        def run_in_thread(self, work: Callable[[], T]) -> T:
            calls.append("aside")
            return work()

    store = MemoryBlobStore()
    buffer = BlobBuffer(store, spill_bytes=250, interleaving=Interleaving())
    ids = [buffer.add(bytes([number]) * 100) for number in range(4)]
    assert calls == ["breathe"] * 3 + ["aside", "breathe"], "the third is put with those before it"
    calls.clear()
    buffer.flush()
    assert calls == ["aside", "aside"], "to see what is missing, and to put"
    assert [store.get(one)[0] for one in ids] == [0, 1, 2, 3]


def test_a_command_is_one_also_after_requests_that_were_carried_out_in_its_round() -> None:
    heartbeat = unwatched_heartbeat()
    watch = RequestPoll(heartbeat)
    pipes = [os.pipe() for _ in range(3)]
    doing = []

    def request() -> None:
        os.read(pipes[0][0], 1)
        watch.begin_request()

    def command() -> None:
        os.read(pipes[1][0], 1)
        doing.append(heartbeat.cells[1])
        watch.stop()

    watch.add(pipes[0][0], request)
    watch.add(pipes[1][0], command)
    for _, writes in pipes[:2]:
        os.write(writes, b"x")
    assert not watch.wait(pipes[2][0])
    assert doing == [COMMAND]
    for descriptor in (descriptor for pipe in pipes for descriptor in pipe):
        os.close(descriptor)
