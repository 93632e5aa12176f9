"""Faults of kinds that engines have shipped, planted one by one: the tests must notice each.

Read `fault`, then the lists (`caches`, `accounts`, `planning`, `computing`, `scores`, `text`,
`turns`, `ranks`, `grammar`, `parts`, `programs`, `gpu`, `long`, `doctor`), then `run`.
`python -m tests.planted` tries all of them.
"""
