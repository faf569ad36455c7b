"""The fleet without Ray: the plan, wakes, holds and leases, hosts and the processes and paths of their activations."""
