"""What the code of a hook reaches through its context: begin with `turn_scope`.

`collected` has what a turn collects until its commit; `questions` and `model_calls` are what it asks of other agents
and of models.
"""
