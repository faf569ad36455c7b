"""Contract suites for the ports of Chronicle, to be subclassed for each implementation."""
