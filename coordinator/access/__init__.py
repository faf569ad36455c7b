"""Who a client is, and what it may do: begin with `coordinator.access.caller`. Free of HTTP."""
