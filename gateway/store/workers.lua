-- The workers whose leases last, as NAME=HOST:PORT.
--
-- KEYS  1 leases, by their ends in microseconds
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZRANGE', KEYS[1], 0, -1)
