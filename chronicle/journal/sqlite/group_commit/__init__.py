"""Group commit on SQLite: writers of all processes queue for one lock, and its holder commits for the waiters.

`writer_lock` is the queue, `waiting_room` the shared memory with the waiters' commits, `write_codec` the encoding of
commits, and `futex` blocks a waiter. docs/internals/journal.md describes the protocol.
"""
