"""The text of what commands show, from JSON objects: the same for a home on this machine and for a remote one.

A module for each subject.
"""
