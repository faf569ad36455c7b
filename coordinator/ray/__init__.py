"""All code that depends on Ray: the cluster, and the actors of the coordinator, node managers and hosts."""
