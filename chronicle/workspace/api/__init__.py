"""The api presentation: a workspace used by calls in the process."""
