"""Contract suites for the ports of Chronicle, to be subclassed by whoever implements one."""
