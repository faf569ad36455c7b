"""The dir presentation: a workspace that is a plain directory, scanned at the end of each turn."""
