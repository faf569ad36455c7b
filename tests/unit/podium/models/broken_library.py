"""A library that is there, and lacks a module that it needs."""

import of_its_own  # type: ignore[import-not-found]  # noqa: F401
