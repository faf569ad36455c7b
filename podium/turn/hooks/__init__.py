"""Hooks of an agent: which one handles a message, how it runs, and how messages and configurations reach it.

Begin with `hook_runner`, which runs a hook under its deadline.
"""
