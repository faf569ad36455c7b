"""Anthropic's Messages API. Begin with `provider`.

`request` and `reader` are pure. The library `anthropic` is imported when a provider is made.
"""
