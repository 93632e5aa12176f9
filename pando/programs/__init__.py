"""Programs: what a user's function writes, runs inside one worker (docs/programs.md).

Read in this order: `function` -> `execution` -> `tracing` | `session` -> `client`; what a function
writes with: `expression`, `state`; what comes of it: `document`, `result` over `picture`, `wire`.
`value` is what stands for a value while tracing.
"""
