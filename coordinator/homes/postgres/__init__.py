"""Records of a home in a schema of PostgreSQL, beside that of its journal. Begin with `records.py`."""
