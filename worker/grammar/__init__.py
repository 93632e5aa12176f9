"""Formal languages that answers must conform to. No torch; the library is llguidance.

Rooms in reading order: `source` (a constraint as the library's source, and what is refused),
`vocabulary` (the model's tokens as the library knows them), `compiled` (a language for this
vocabulary), `compiler` (sources to languages, cached), `outlook` (what may follow an answer),
`matcher` (where one answer stands), `masks` (outlooks, computed beside the engine's thread).
"""
