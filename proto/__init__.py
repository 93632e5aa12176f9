"""The contract between gateways and workers: `worker.proto` and its committed stubs.

`make proto` regenerates the stubs; a test compares. Only the doors import this package:
`gateway.fleet.{link,session,wire}`, `worker.{link,wire,health}`, and the fake worker of `loadtest`.
`program.py`, the graph of a program, is read by `gateway.http.programs` and `worker.programs`.
"""
