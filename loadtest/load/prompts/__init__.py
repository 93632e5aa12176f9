"""Kinds of traffic: each a value with its parameters that gives conversations by a random source.

agent       long tools and a system prompt, a history that grows by results of tools
chat        conversations of several turns; and short prompts that share nothing
documents   questions of one long document; questions behind worked examples
tenants     many tenants with rates of their own, each with its own system prompt
shared      prompts in groups with one prefix, with the parameters of other projects' tools
"""
