"""The api presentation: a workspace that is used by calls in the process."""
