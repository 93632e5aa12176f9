"""The gateway: OpenAI HTTP in, one link to every worker, the answer streamed back.

It stands between clients and workers and keeps no state that a restart would miss. It imports no
torch, no numpy and nothing of the worker; the link speaks `proto`, and no other module does.

Read in this order:

    __main__    the only wiring: configuration -> objects -> uvicorn
    pipeline    one request's story
    app         HTTP routes, from the body to the answer
    connection  the socket, and what uvicorn sets no limit to
    inbound     headers, the body within its limit, and the hang-up
    reply       a whole body, a stream of events, or an error
    openai      the request types, and what is refused by name
    intake      an OpenAI request as a job: what each worker is asked
    tenants     who asks, and what they may
    prefix      the name of a request's static prefix
    router      which worker, and why
    ring        consistent hashing with bounded load
    fleet       the live workers and their leases
    link        the gRPC stream to one worker
    mailbox     where a link leaves a request's events
    answer      the response objects and their events
    request     the values between intake, link and answer
    telemetry   every metric and the log
    errors      what can go wrong, and what the client is told
    config      all that an operator may set
"""
