"""Identity and rights of clients: keys, tenants, quotas and the audit record. Free of HTTP.

Begin with `coordinator.access.caller`; `coordinator.access.key_access` authenticates by the keys of
`coordinator.access.key_store`.
"""
