"""Programs: graphs of steps that run inside this worker (docs/programs.md).

tape       one branch's text and ids, as they grow
beginning  what is literal of it, and where the gateway's boundaries lie
scoring    which of several choices is the likeliest
run        a program, from its first node to its last output
sessions   what is kept of a program for the next one
"""
