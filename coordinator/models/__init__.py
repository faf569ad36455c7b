"""The model gateway: profiles, calls of models and their records. Begin with `calls`.

Everything goes through one process a home, which has the keys; `coordinator.models.client` reaches it.
"""
