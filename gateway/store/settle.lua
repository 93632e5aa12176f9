-- Replaces what an id took by what it is charged, once, and gives its lease back.
--
-- KEYS  1 meter   2 leases   3 record
-- ARGV  1 id   2 tokens to charge in all   3 requests a minute   4 tokens a minute   (0: no limit)
-- gives 1 if it was charged, 0 if nothing was left to be settled under the id
local MINUTE = 60000000
redis.call('ZREM', KEYS[2], ARGV[1])
local taken = redis.call('GET', KEYS[3])
if not taken then return 0 end
redis.call('DEL', KEYS[3])
local more = ARGV[2] - taken
local limit = { tonumber(ARGV[3]), tonumber(ARGV[4]) }
if limit[2] == 0 or more == 0 then return 1 end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local meter = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local passed = math.max(0, now - (tonumber(meter[3]) or now))
local level = { 0, 0 }
local dry = 0
for i = 1, 2 do
  if limit[i] > 0 then
    level[i] = math.max(0, (tonumber(meter[i]) or 0) - passed * limit[i] / MINUTE)
    if i == 2 then level[i] = math.max(0, level[i] + more) end
    dry = math.max(dry, level[i] * 60000 / limit[i])
  end
end
redis.call('HSET', KEYS[1], 'requests', level[1], 'tokens', level[2], 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(dry) + 1000)
return 1
