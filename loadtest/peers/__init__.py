"""Other engines on the same load: how each is started, here and nowhere else.

A peer that serves OpenAI's HTTP gets the very requests that our fleet gets. transformers' paged
`generate_batch` has no server here and runs in a process of its own (`generate_batch`).
"""
