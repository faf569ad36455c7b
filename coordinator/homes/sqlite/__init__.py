"""Records of a home in SQLite files beside its journal. Begin with `records.py`."""
