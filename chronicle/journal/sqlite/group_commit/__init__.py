"""Group commit on SQLite: writers of all processes queue for one lock, and its holder commits for those that wait.

`writer_lock` is the queue, `waiting_room` the shared memory in which commits are left, `commit_codec` their form as
bytes, and `futex` how a waiter sleeps. docs/internals/journal.md describes the protocol.
"""
