"""The contract between gateways and workers: `worker.proto` and its committed stubs.

`make proto` regenerates the stubs; a test compares. Only the two doors import this package:
`gateway.link` and `worker.link` (and the health and reflection servers beside it).
"""
