"""A journal in SQL: what the stores on SQLite and PostgreSQL share. No driver is imported here."""
