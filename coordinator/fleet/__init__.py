"""The fleet without Ray: the plan, wakes, sleep holds, leases and cancellation. The hosts are in `coordinator.host`."""
