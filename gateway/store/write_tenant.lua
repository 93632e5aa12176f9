-- Replaces a tenant's record, if it is what the writer believes it to be.
--
-- KEYS  1 records (hash: JSON by id)   2 version
-- ARGV  1 id   2 record before   3 record after   (empty: none)   4 a random word of the writer
-- gives 1 if the record is now `after`, 0 if it was something else before
--
-- The version is EPOCH:COUNT. An epoch begins where there is no version: never twice the same, or
-- who knows the count of a Redis that lost all would take the new one for it.
local held = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if held == ARGV[3] then return 1 end
if held ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
local version = redis.call('GET', KEYS[2])
if not version then
  local time = redis.call('TIME')
  version = ARGV[4] .. '.' .. time[1] .. '.' .. time[2] .. ':0'
end
local epoch, count = string.match(version, '^(.*):(%d+)$')
redis.call('SET', KEYS[2], epoch .. ':' .. string.format('%d', count + 1))
return 1
