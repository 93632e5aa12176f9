-- Counts one request against a tenant's limits: all of it, or nothing.
--
-- KEYS  1 meter (hash: requests, tokens, at)   2 leases (sorted set: id by end)   3 record (tokens)
-- ARGV  1 id   2 tokens   3 requests a minute   4 tokens a minute   5 concurrency   (0: no limit)
--       6 lease, microseconds   7 how long the record is kept at most, seconds
-- gives six numbers as text: limit that denied (0: none, 1 requests, 2 tokens, 3 concurrency), wait,
--       requests remaining, until all are back, tokens remaining, until all are back; times in
--       milliseconds. (One string is read faster than six numbers.)
-- A level is what was taken and has not leaked out yet; the clock is Redis's.
local MINUTE = 60000000
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local asked = { 1, tonumber(ARGV[2]) }
local limit = { tonumber(ARGV[3]), tonumber(ARGV[4]) }
local concurrency = tonumber(ARGV[5])

local meter = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local passed = math.max(0, now - (tonumber(meter[3]) or now))
local level = { 0, 0 }
for i = 1, 2 do
  level[i] = math.max(0, (tonumber(meter[i]) or 0) - passed * limit[i] / MINUTE)
  if limit[i] == 0 then level[i] = 0 end
end

local known = redis.call('EXISTS', KEYS[3]) == 1
local denied, wait = 0, 0
if not known then
  if concurrency > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    if redis.call('ZCARD', KEYS[2]) >= concurrency then denied, wait = 3, 1000 end
  end
  for i = 1, 2 do
    local over = level[i] + asked[i] - limit[i]
    if limit[i] > 0 and over > 0.000001 then
      local needed = math.ceil(over * MINUTE / limit[i] / 1000)
      if denied == 0 or denied == 3 or needed > wait then denied, wait = i, needed end
    end
  end
  if denied == 0 then
    redis.call('SET', KEYS[3], ARGV[2], 'EX', ARGV[7])
    if concurrency > 0 then
      redis.call('ZADD', KEYS[2], now + ARGV[6], ARGV[1])
      redis.call('PEXPIRE', KEYS[2], math.ceil(ARGV[6] / 1000) + 1000)
    end
    local dry = 0
    for i = 1, 2 do
      if limit[i] > 0 then
        level[i] = level[i] + asked[i]
        dry = math.max(dry, level[i] * 60000 / limit[i])
      end
    end
    if dry > 0 then
      redis.call('HSET', KEYS[1], 'requests', level[1], 'tokens', level[2], 'at', now)
      redis.call('PEXPIRE', KEYS[1], math.ceil(dry) + 1000)
    end
  end
end

local told = { denied, string.format('%d', wait) }
for i = 1, 2 do
  if limit[i] > 0 then
    local remaining = math.max(0, math.floor(limit[i] - level[i] + 0.000001))
    told[2 * i + 1] = string.format('%d', remaining)
    told[2 * i + 2] = string.format('%d', math.ceil(level[i] * 60000 / limit[i]))
  else
    told[2 * i + 1], told[2 * i + 2] = '0', '0'
  end
end
return table.concat(told, ' ')
