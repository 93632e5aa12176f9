"""What operators see.

metrics        every metric but tenancy's, and a request's record
collectors     what is kept elsewhere and read when somebody asks
worker_series  forgets the series of workers that are gone for good
tenancy        the metrics of tenants, quotas and stores
totals         sums over all tenants, for the page
lives          the last requests: steps, times, where they went
stays          a life as its time with each worker, and what the worker did then
tracing        a request's trace; `spans` makes OpenTelemetry's of a life, `exporting` sends them
lag            how late the event loop is
log            one event per line
"""
