"""The workers: who is live, what they hold and how loaded they are, and the link to each.

workers      the live workers and the leases on them
view         what a worker's cache holds; `ledger` writes it by numbered events
departures   what left the caches lately, and for whose need
breaker      keeps requests from a worker that fails again and again
link         connect, greet, converse, and again; `session` is one unbroken stream of it
wire         protobuf to our values and back; `channel` how it is connected
links        the links to all workers that `discovery` finds
foreign      servers with OpenAI's API; `foreign_door` asks them, `openai_door` translates
"""
