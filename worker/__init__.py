"""A worker: one model, one prefix cache, one loop, behind one gRPC stream per gateway.

Read in this order:

    __main__    the only wiring, and the one place that picks a cache
    link, tls   the gRPC door: one stream per gateway
    wire        protobuf messages to values and back
    service     every request's one life and one end; roster: who is live
    entry       how an accepted request gets to the engine; timing: what its time went to
    intake      a submission in tokens: template, tokeniser, limits
    engine      the loop: plan, run, apply; its thread and two queues; stopwatch: times
    scheduler   who runs in a step, how many tokens
    order/      who is admitted next
    allotment   a sequence's pages: admit, grow, commit, give back
    cache/      the page pool and the prefix caches over it
    step        all that crosses the torch line
    runner      a plan as tensors: copies, one forward, samples
    model/      the two model members, and the files they load (sizes: what follows from them)
    parallel/   one model over several processes
    sampler     logits to token ids
    stream      a request's choices, its usage
    choice      tokens to text, stop strings, what another worker began

Up to `step` no module imports torch.
"""
