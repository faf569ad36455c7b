"""Records of a home in SQL. Begin with `port.py`; the databases are the rooms beside this one."""
