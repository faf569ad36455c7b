"""The parts of the port of journal stores, one for each kind of record. Begin with `events.py` and `inbox.py`.

They are put together in :mod:`chronicle.journal.port`, whose rules hold for all of them.
"""
