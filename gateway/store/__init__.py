"""What outlives a request, or is shared by gateways: quotas, usage, tenants (steps 2 and 12).

interface  what is asked of a store, and the values that cross
memory     one gateway's own, gone with it
redis      shared by all gateways; its scripts are the .lua files
lane       how Redis is asked: everything that waits goes out in one piece
failover   Redis while it answers, memory while it does not
"""
