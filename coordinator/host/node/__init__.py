"""Resources of all hosts of a node: workspace paths with locks, marks of processes, and the causes of their ends.

The node's manager and its hosts use these files and system calls side by side; nothing here knows an agent's code.
"""
