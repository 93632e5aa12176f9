"""Why a prompt missed the cache. Pure but for `practice`: no clock, no sockets, no text kept.

finding     what is said of a prompt, in a word and in a sentence
doctor      asked before, answered after: the interface for the gateway and for logs
history     where a prompt parts from what was seen, and what it resembles there
likeness    how two parts differ: a value, space, order, template
shape       a part as digests and places of values; `volatile` finds those, `spacing` drops space
prompt      a prompt in parts
memory      what was seen; bounded
served      it was seen and did not come from a cache: where it went
recent      the last findings of each tenant
allowance   how many prompts may be examined in a second
practice    the doctor in the gateway: counted, and never in a request's way
"""
