"""The fleet without Ray: the plan, wakes, sleep holds, leases and cancellation. The hosts are in `coordinator.host`.

Begin with `state`, what the coordinator knows, and `plan`, which computes from it what is to be done. Nodes, deaths,
code and the services of a home have rooms of their own.
"""
