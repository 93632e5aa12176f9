"""A fleet under load into which faults are thrown; everything is counted from single answers.

asks      what is asked, and what is known of whose it is
answers   one request to its end, and what it said
verdict   what an end means: right, refused properly, cut, or lost
members   processes whose log may be held up
wires     networks between gateways and workers that can be cut, or swallow everything
fleet     Redis, gateways and workers that die and come back
faults    what is done to them
load      clients that never stop asking
leftovers what must not be there when all is quiet
story     the report: table, timeline, Markdown
"""
