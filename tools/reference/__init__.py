"""The pages of ``docs/reference`` that are generated from code: ``python -m tools.reference``.

Each module makes one page from what the code itself says: its docstrings, its command line, its OpenAPI document. Begin
with `tools.reference.__main__`.
"""
