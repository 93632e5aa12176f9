-- Replaces a tenant's record, if it is what the writer believes it to be.
--
-- KEYS  1 records (hash: JSON by id)   2 version
-- ARGV  1 id   2 record before   3 record after   (empty: none)   4 what a first version begins with
-- gives 1 if the record is now `after`, 0 if it was something else before
local held = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if held == ARGV[3] then return 1 end
if held ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
local version = redis.call('GET', KEYS[2])
local epoch, count = string.match(version or (ARGV[4] .. ':0'), '^(.*):(%d+)$')
redis.call('SET', KEYS[2], epoch .. ':' .. string.format('%d', count + 1))
return 1
