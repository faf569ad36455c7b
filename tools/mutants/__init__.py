"""Mutation runs: of each numbered row of the mission's interfaces, whether its own tests notice a broken product.

`rows` finds the tests of a row, `tracing` the lines of the product that they run, `mutations` what can be broken there,
and `trials` runs the tests on a broken copy. ``python -m tools.mutants`` does it and keeps the scores.

mutmut and cosmic-ray choose lines by module and run one command for all of them: neither runs a row's tests alone, on
lines that these run.
"""
