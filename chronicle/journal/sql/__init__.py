"""A journal in SQL: what the stores on SQLite and PostgreSQL share. No driver is imported here.

Begin with `store`, whose methods are the port's; it inherits those of `sessions` and `objects`. The statements of each
table are in the module of that name.
"""
