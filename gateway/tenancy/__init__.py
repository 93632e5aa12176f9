"""Who asks, what they may, and what they used (steps 2 and 12).

tenants       from a key to a tenant
sources       where tenants are kept, and the roster that all sources make
file_source   a file that is followed and written
redis_source  Redis, followed and written by all gateways
watch         follows the sources, and keeps the roster
directory     tenants as the admin API reads and writes them
keys          what an API key looks like, and how it is kept
quota         what a request takes of its tenant's limits, and what it is charged
estimate      how many tokens a request may take
refusal       how limits are told
usage         what tenants used, on its way to the store
assembly      its part of the wiring
"""
