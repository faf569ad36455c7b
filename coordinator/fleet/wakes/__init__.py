"""Wakes of agents: who asks for them, when a failed one is tried again, and what keeps an agent asleep.

Begin with `requests`.
"""
