"""Streams of messages and events to many readers, which resume them where they were cut; free of any web framework.

`message_streams` is the entry.
"""
