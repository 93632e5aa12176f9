"""POST /v1/programs: a graph of steps that runs inside one worker (docs/programs.md).

check      what must hold of names, places and sizes
prompts    what its steps ask together
kept       how much text sessions have
request    the body
answer     its events, and the whole
route      what the route makes of a request
"""
