"""Capabilities of a hook: begin with `turn_scope`, which has an object for each subject.

`open_turn` has what a turn collects until its commit; each other file is a capability.
"""
