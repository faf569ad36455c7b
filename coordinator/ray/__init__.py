"""All that knows Ray: the cluster, the coordinator's, node managers' and hosts' actors."""
