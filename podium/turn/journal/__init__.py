"""Turns in the journal.

`commit` builds the transaction that ends a turn, `ledger` writes it and reads what it is built on, `snapshot_policy`
decides whether it carries a snapshot, and `frames` reads the frames of a message back.
"""
