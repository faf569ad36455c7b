"""The dir presentation: a workspace in a plain directory, scanned at the end of each turn."""
