"""The gateway: OpenAI HTTP in, one link to every worker, the answer streamed back.

It stands between clients and workers and keeps no state that a restart would miss. It imports no
torch, no numpy and nothing of the worker; the link speaks `proto`, and no other room does.

Read in this order:

    pipeline    one request's story
    part        one prompt of it on its way through the fleet
    given_out   what a client has already, for whoever goes on
    http        OpenAI in and out; the admin API
    job         a request understood: what each worker is asked, for whom
    queueing    who is next, and the credit that ends a wait
    doctor      why a prompt missed the cache
    routing     which worker, and why
    fleet       the workers: links, views, discovery, breakers, foreign servers
    tenancy     who asks, what they may, and what it costs
    store       what gateways share, or one keeps: quotas, usage, tenants, registry
    request     the values between intake, link and answer
    mailbox     where a link leaves a request's events
    budget      how many retries there may be
    telemetry   metrics and the log
    errors      what can go wrong, and what the client is told
    config      all that an operator may set; `tenant_config` is the tenants' part
    assembly    the only wiring; `background` runs what works beside requests
    __main__    settings, then serve until a signal
"""
