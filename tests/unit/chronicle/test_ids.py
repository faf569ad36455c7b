"""Ids of the system's randomness."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

from chronicle.ids import IdSource, SystemRandomBits, made_ms


def _made(count: int) -> list[str]:
    ids = IdSource()
    return [ids.event(1_000) for _ in range(count)]


def test_ids_differ_in_threads_and_forked_processes() -> None:
    known = _made(10)  # so that a child is forked with random bits drawn ahead
    with ThreadPoolExecutor(4) as threads:
        in_threads = [each for made in threads.map(_made, [600] * 4) for each in made]
    with multiprocessing.get_context("fork").Pool(2) as children:
        in_children = [each for made in children.map(_made, [600] * 4) for each in made]
    everything = known + in_threads + in_children + _made(600)
    assert len(set(everything)) == len(everything) == 10 + 9 * 600
    assert {made_ms(each) for each in everything} == {1_000}


def test_a_process_and_its_forked_children_make_no_id_twice() -> None:
    _made(1)  # so that random bits are drawn ahead, and all of them know the same
    reader, writer = os.pipe()
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            os.write(writer, "".join(_made(20)).encode())
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    os.close(writer)
    own = _made(20)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    length = len(own[0])
    theirs = [text[start : start + length] for start in range(0, len(text), length)]
    assert len({*own, *theirs}) == 80


def test_a_source_draws_as_many_bits_as_are_asked_for() -> None:
    bits = SystemRandomBits()
    assert {bits.getrandbits(1) for _ in range(100)} == {0, 1}
    assert max(bits.getrandbits(80) for _ in range(100)).bit_length() in range(70, 81)
