"""Responses of models on sessions, with the names of Open Responses. Begin with `responses`.

The pure part turns a request, a branch and its bundles into messages (`items`, `transcript`), and what a model says
into events and an object (`encoder`, `objects`). It knows no HTTP, and no library of a vendor.
"""
