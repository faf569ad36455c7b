"""Tests that ask real models, with keys of the environment: ``make test ARGS="-m live"``.

They cost money and need a network, so no other run has them. A model without a key is passed over.
"""
