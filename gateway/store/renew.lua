-- The ids count as running for another lease.
--
-- KEYS  1 leases
-- ARGV  1 lease, microseconds   2 ... ids
local time = redis.call('TIME')
local ends = time[1] * 1000000 + time[2] + ARGV[1]
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], ends, ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000) + 1000)
return #ARGV - 1
