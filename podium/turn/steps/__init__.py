"""Steps: parts of a turn with durable results, which a further attempt does not run again.

Entry: `podium.turn.steps.turn_steps.TurnSteps`. Semantics: docs/internals/steps.md.
"""
