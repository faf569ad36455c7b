"""The journal: an append-only, hash-chained record of events in branches, with inboxes, outboxes and leases."""
