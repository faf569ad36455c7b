"""Mountpoints of this machine: what is mounted where, who uses it, and the guard of the directory below a mount."""
