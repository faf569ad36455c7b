"""Reminders: messages that an agent gets from itself at given times. `schedule` is when, `firing` what sends them."""
