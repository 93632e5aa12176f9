"""A load test of any server with OpenAI's API: what is sent, when, what came back, what it means.

prompts    what is sent, by seed; recorded: by a file
arrivals   when; sending: who waits for whom
target     one request, timed; samples: what is kept of it
sharing    what an unlimited cache would have given
figures    percentiles, goodput, hits, balance; compared: a run against another one
pictures, page   for people
runs       all of that in order; bench: a fleet for it; ladder, scenarios: what is shown on such
command    what may be asked for in words; asked, options: what they mean
"""
