"""A host without Ray: the process of one agent, its deliveries, and the node's paths, marks and ends of such processes.

`agent_host` is the entry.
"""
