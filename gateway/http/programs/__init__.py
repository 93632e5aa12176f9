"""POST /v1/programs: a graph of steps that runs inside one worker (docs/programs.md).

check      what must hold of names, places and sizes
request    the body
answer     its events, and the whole
route      what the route makes of a request
"""
