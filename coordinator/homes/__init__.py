"""The records of a home beside its journal: keys, quotas, calls of models, documents. Begin with `records.py`.

`opening.py` opens them by the home's journal: `sqlite/` keeps them in files of the home, `postgres/` in a schema beside
that of the journal; `sql/` is what both share.
"""
